// Calls under the names that they had before their `_v2`, where these are the same; the others of that time are refused.
#include "driver/driver.h"

#undef cuCtxDestroy
#undef cuCtxPopCurrent
#undef cuCtxPushCurrent
#undef cuStreamDestroy
#undef cuEventDestroy
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuDevicePrimaryCtxSetFlags
#undef cuDeviceGetUuid
#undef cuGetProcAddress

#define SAME(name, parameters, arguments) \
    CUresult name parameters;             \
    CUresult name parameters { return name##_v2 arguments; }
SAME(cuCtxDestroy, (CUcontext context), (context))
SAME(cuCtxPopCurrent, (CUcontext *into), (into))
SAME(cuCtxPushCurrent, (CUcontext context), (context))
SAME(cuStreamDestroy, (CUstream stream), (stream))
SAME(cuEventDestroy, (CUevent event), (event))
SAME(cuDevicePrimaryCtxRelease, (CUdevice number), (number))
SAME(cuDevicePrimaryCtxReset, (CUdevice number), (number))
SAME(cuDevicePrimaryCtxSetFlags, (CUdevice number, unsigned flags), (number, flags))
SAME(cuDeviceGetUuid, (CUuuid *into, CUdevice number), (into, number))

CUresult cuGetProcAddress(const char *name, void **into, int version, cuuint64_t flags);
CUresult cuGetProcAddress(const char *name, void **into, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(name, into, version, flags, NULL);
}
