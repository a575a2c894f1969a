// Launches 1 to 10 inside and outside of NVTX ranges: solve is open around 2, 3 and 7, halo around 5, 8 and 9.
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <thread>

__global__ void nothing() {}

static void launch() { nothing<<<1, 32>>>(); }

static nvtxEventAttributes_t event(nvtxMessageType_t type, nvtxMessageValue_t message) {
    nvtxEventAttributes_t found = {};
    found.version = NVTX_VERSION;
    found.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    found.messageType = type;
    found.message = message;
    return found;
}

int main() {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
    launch();  // 1: in none
    nvtxRangePushA("solve");
    launch();  // 2
    nvtxRangePushA("inner");
    launch();  // 3: solve is around it
    nvtxRangePop();
    std::thread(launch).join();  // 4: of a thread that pushed nothing
    nvtxRangePop();
    nvtxRangeId_t range = nvtxRangeStartW(L"halo");
    std::thread(launch).join();  // 5: a range of the whole process
    nvtxRangeEnd(range);
    nvtxRangePushA("solver");
    launch();  // 6: another name
    nvtxRangePop();
    nvtxMessageValue_t value;
    value.registered = nvtxDomainRegisterStringA(domain, "solve");
    nvtxEventAttributes_t registered = event(NVTX_MESSAGE_TYPE_REGISTERED, value);
    nvtxDomainRangePushEx(domain, &registered);
    nvtxRangePushA("other");
    launch();  // 7
    nvtxDomainRangePop(domain);  // ranges of two domains need not nest
    value.ascii = "halo";
    nvtxEventAttributes_t ascii = event(NVTX_MESSAGE_TYPE_ASCII, value);
    range = nvtxDomainRangeStartEx(domain, &ascii);
    launch();  // 8
    nvtxRangePop();
    nvtxRangePushEx(&ascii);
    launch();  // 9
    nvtxRangePop();
    nvtxDomainRangeEnd(domain, range);
    launch();  // 10: all are closed
    return cudaDeviceSynchronize();
}
