// Graphs, which are the runtime's; nodes are given as the driver describes them.
#include <stdlib.h>

#include "driver/driver.h"

CUresult cuGraphCreate(CUgraph *into, unsigned flags) {
    IN_CONTEXT;
    return result_of(cudaGraphCreate(into, flags));
}

CUresult cuGraphClone(CUgraph *into, CUgraph graph) {
    IN_CONTEXT;
    return result_of(cudaGraphClone(into, graph));
}

CUresult cuGraphDestroy(CUgraph graph) {
    IN_CONTEXT;
    return result_of(cudaGraphDestroy(graph));
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *into, size_t *count) {
    IN_CONTEXT;
    return result_of(cudaGraphGetNodes(graph, into, count));
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    IN_CONTEXT;
    return result_of(cudaGraphNodeGetType(node, (enum cudaGraphNodeType *)type));
}

// Nodes

static CUresult kernel_of(struct cudaKernelNodeParams *into, const CUDA_KERNEL_NODE_PARAMS *given, void ***arguments) {
    if (given == NULL) return CUDA_ERROR_INVALID_VALUE;
    const void *function = given->func;
#if CUDA_VERSION >= 12000
    if (function == NULL) function = given->kern;
#endif
    *into = (struct cudaKernelNodeParams){.func = (void *)function,
                                          .gridDim = {given->gridDimX, given->gridDimY, given->gridDimZ},
                                          .blockDim = {given->blockDimX, given->blockDimY, given->blockDimZ},
                                          .sharedMemBytes = given->sharedMemBytes};
    const CUresult result = arguments_of(function, given->kernelParams, given->extra, arguments);
    if (result == CUDA_SUCCESS) into->kernelParams = *arguments;
    return result;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *into, CUgraph graph, const CUgraphNode *before, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *given) {
    IN_CONTEXT;
    struct cudaKernelNodeParams kernel;
    void **arguments = NULL;
    CUresult result = kernel_of(&kernel, given, &arguments);
    if (result) return result;
    result = result_of(cudaGraphAddKernelNode(into, graph, before, count, &kernel));
    if (arguments != given->kernelParams) free(arguments);
    return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given) {
    IN_CONTEXT;
    struct cudaKernelNodeParams kernel;
    void **arguments = NULL;
    CUresult result = kernel_of(&kernel, given, &arguments);
    if (result) return result;
    result = result_of(cudaGraphKernelNodeSetParams(node, &kernel));
    if (arguments != given->kernelParams) free(arguments);
    return result;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec graph, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given) {
    IN_CONTEXT;
    struct cudaKernelNodeParams kernel;
    void **arguments = NULL;
    CUresult result = kernel_of(&kernel, given, &arguments);
    if (result) return result;
    result = result_of(cudaGraphExecKernelNodeSetParams(graph, node, &kernel));
    if (arguments != given->kernelParams) free(arguments);
    return result;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *into, CUgraph graph, const CUgraphNode *before, size_t count,
                              const CUDA_MEMCPY3D *given, CUcontext context) {
    IN_CONTEXT;
    (void)context;
    struct cudaMemcpy3DParms box;
    const CUresult result = box_of(&box, given);
    return result ? result : result_of(cudaGraphAddMemcpyNode(into, graph, before, count, &box));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec graph, CUgraphNode node, const CUDA_MEMCPY3D *given, CUcontext context) {
    IN_CONTEXT;
    (void)context;
    struct cudaMemcpy3DParms box;
    const CUresult result = box_of(&box, given);
    return result ? result : result_of(cudaGraphExecMemcpyNodeSetParams(graph, node, &box));
}

static struct cudaMemsetParams set_of(const CUDA_MEMSET_NODE_PARAMS *given) {
    return (struct cudaMemsetParams){.dst = (void *)given->dst, .pitch = given->pitch, .value = given->value,
                                     .elementSize = given->elementSize, .width = given->width, .height = given->height};
}

CUresult cuGraphAddMemsetNode(CUgraphNode *into, CUgraph graph, const CUgraphNode *before, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *given, CUcontext context) {
    IN_CONTEXT;
    (void)context;
    if (given == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct cudaMemsetParams set = set_of(given);
    return result_of(cudaGraphAddMemsetNode(into, graph, before, count, &set));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec graph, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *given,
                                        CUcontext context) {
    IN_CONTEXT;
    (void)context;
    if (given == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct cudaMemsetParams set = set_of(given);
    return result_of(cudaGraphExecMemsetNodeSetParams(graph, node, &set));
}

CUresult cuGraphAddHostNode(CUgraphNode *into, CUgraph graph, const CUgraphNode *before, size_t count,
                            const CUDA_HOST_NODE_PARAMS *given) {
    IN_CONTEXT;
    if (given == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct cudaHostNodeParams host = {.fn = given->fn, .userData = given->userData};
    return result_of(cudaGraphAddHostNode(into, graph, before, count, &host));
}

CUresult cuGraphAddEmptyNode(CUgraphNode *into, CUgraph graph, const CUgraphNode *before, size_t count) {
    IN_CONTEXT;
    return result_of(cudaGraphAddEmptyNode(into, graph, before, count));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *into, CUgraph graph, const CUgraphNode *before, size_t count, CUgraph child) {
    IN_CONTEXT;
    return result_of(cudaGraphAddChildGraphNode(into, graph, before, count, child));
}

#if CUDA_VERSION >= 13000
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count) {
    IN_CONTEXT;
    return result_of(cudaGraphAddDependencies(graph, from, to, (const cudaGraphEdgeData *)data, count));
}
#endif

// What was instantiated

CUresult cuGraphInstantiateWithFlags(CUgraphExec *into, CUgraph graph, unsigned long long flags) {
    IN_CONTEXT;
    return result_of(cudaGraphInstantiateWithFlags(into, graph, flags));
}

#if CUDA_VERSION >= 12000
CUresult cuGraphInstantiateWithParams(CUgraphExec *into, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *given) {
    IN_CONTEXT;
    if (given == NULL) return CUDA_ERROR_INVALID_VALUE;
    const cudaError_t error = cudaGraphInstantiateWithFlags(into, graph, given->flags);
    given->hErrNode_out = NULL;
    given->result_out = error ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result_of(error);
}
#endif

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    IN_CONTEXT;
    return result_of(cudaGraphLaunch(graph, stream));
}

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
    IN_CONTEXT;
    return result_of(cudaGraphUpload(graph, stream));
}

CUresult cuGraphExecDestroy(CUgraphExec graph) {
    IN_CONTEXT;
    return result_of(cudaGraphExecDestroy(graph));
}

CUresult cuGraphNodeSetEnabled(CUgraphExec graph, CUgraphNode node, unsigned is_enabled) {
    IN_CONTEXT;
    return result_of(cudaGraphNodeSetEnabled(graph, node, is_enabled));
}

#if CUDA_VERSION >= 12000
_Static_assert(sizeof(CUgraphExecUpdateResultInfo) == sizeof(cudaGraphExecUpdateResultInfo), "results of updates differ");

CUresult cuGraphExecUpdate_v2(CUgraphExec graph, CUgraph wanted, CUgraphExecUpdateResultInfo *result) {
    IN_CONTEXT;
    return result_of(cudaGraphExecUpdate(graph, wanted, (cudaGraphExecUpdateResultInfo *)result));
}
#endif

// Objects of the program that graphs keep

CUresult cuUserObjectCreate(CUuserObject *into, void *content, CUhostFn destroy, unsigned count, unsigned flags) {
    ENTERED;
    return result_of(cudaUserObjectCreate(into, content, destroy, count, flags));
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
    ENTERED;
    return result_of(cudaUserObjectRetain(object, count));
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
    ENTERED;
    return result_of(cudaUserObjectRelease(object, count));
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
    ENTERED;
    return result_of(cudaGraphRetainUserObject(graph, object, count, flags));
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
    ENTERED;
    return result_of(cudaGraphReleaseUserObject(graph, object, count));
}
