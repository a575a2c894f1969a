// Graphs: captured from streams or built node by node, run in an order that keeps every dependency.
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

struct CUgraphNode_st {
    Operation operation;
    Graph *graph;
    size_t index;       // in the graph, and in what was instantiated of it
    bool is_disabled;
};
struct Graph {
    struct CUgraphNode_st **nodes;
    size_t num_nodes;
    size_t (*edges)[2];  // indices: before, after
    size_t num_edges;
};

Graph *graph_new(void) { return calloc(1, sizeof(Graph)); }

static struct CUgraphNode_st *add_node(Graph *graph, const Operation *operation) {
    struct CUgraphNode_st *node = calloc(1, sizeof *node);
    struct CUgraphNode_st **more = realloc(graph->nodes, (graph->num_nodes + 1) * sizeof *more);
    if (node == NULL || more == NULL) abort();
    graph->nodes = more;
    *node = (struct CUgraphNode_st){*operation, graph, graph->num_nodes, false};
    graph->nodes[graph->num_nodes++] = node;
    return node;
}

static void add_edge(Graph *graph, size_t before, size_t after) {
    graph->edges = realloc(graph->edges, (graph->num_edges + 1) * sizeof *graph->edges);
    if (graph->edges == NULL) abort();
    graph->edges[graph->num_edges][0] = before;
    graph->edges[graph->num_edges++][1] = after;
}

void graph_add(Graph *graph, Operation *operation) { add_node(graph, operation); }

Graph *graph_clone(const Graph *graph) {
    Graph *clone = graph_new();
    for (size_t k = 0; k < graph->num_nodes; k++) {
        const Operation copy = operation_copy_of(&graph->nodes[k]->operation);
        add_node(clone, &copy)->is_disabled = graph->nodes[k]->is_disabled;
    }
    for (size_t k = 0; k < graph->num_edges; k++) add_edge(clone, graph->edges[k][0], graph->edges[k][1]);
    user_objects_cloned(graph, clone);
    return clone;
}

void graph_free(Graph *graph) {
    user_objects_of_freed(graph);
    for (size_t k = 0; k < graph->num_nodes; k++) {
        operation_free(&graph->nodes[k]->operation);
        free(graph->nodes[k]);
    }
    free(graph->nodes);
    free(graph->edges);
    free(graph);
}

const cudaGraphNode_t *graph_last(const Graph *graph) {
    return graph->num_nodes ? &graph->nodes[graph->num_nodes - 1] : NULL;
}

// The first node in the order of their making whose predecessors have run, again and again; false for a cycle.
static bool in_order(const Graph *graph, size_t *order) {
    size_t *missing = calloc(graph->num_nodes + 1, sizeof *missing), count = 0;
    bool *is_taken = calloc(graph->num_nodes + 1, sizeof *is_taken), found = true;
    for (size_t k = 0; k < graph->num_edges; k++) missing[graph->edges[k][1]]++;
    while (found && count < graph->num_nodes) {
        found = false;
        for (size_t node = 0; node < graph->num_nodes; node++) {
            if (is_taken[node] || missing[node]) continue;
            is_taken[node] = found = true;
            order[count++] = node;
            for (size_t k = 0; k < graph->num_edges; k++)
                if (graph->edges[k][0] == node) missing[graph->edges[k][1]]--;
        }
    }
    free(missing);
    free(is_taken);
    return count == graph->num_nodes;
}

cudaError_t graph_run(const Graph *graph, const Stream *stream) {
    size_t *order = calloc(graph->num_nodes + 1, sizeof *order);
    cudaError_t error = in_order(graph, order) ? cudaSuccess : cudaErrorInvalidValue;
    for (size_t k = 0; k < graph->num_nodes && error == cudaSuccess; k++) {
        const struct CUgraphNode_st *node = graph->nodes[order[k]];
        if (!node->is_disabled) error = run_operation(&node->operation, stream);
    }
    free(order);
    return error;
}

// Capture

cudaError_t cudaStreamBeginCapture(cudaStream_t given, enum cudaStreamCaptureMode mode) {
    LOCKED;
    (void)mode;
    Stream *stream = stream_of(given);
    if (stream == NULL) return failed(cudaErrorInvalidResourceHandle);
    if (stream == stream_of(NULL)) return failed(cudaErrorStreamCaptureUnsupported);
    if (stream->capture) return failed(cudaErrorIllegalState);
    stream->capture = graph_new();
    stream->is_capture_origin = true;
    return done();
}

cudaError_t cudaStreamEndCapture(cudaStream_t given, cudaGraph_t *into) {
    LOCKED;
    Stream *stream = stream_of(given);
    if (stream == NULL) return failed(cudaErrorInvalidResourceHandle);
    if (stream->capture == NULL) return failed(cudaErrorIllegalState);
    if (!stream->is_capture_origin) return failed(cudaErrorStreamCaptureUnmatched);
    *into = (cudaGraph_t)stream->capture;
    streams_end_capture(stream->capture);
    return done();
}

cudaError_t cudaStreamIsCapturing(cudaStream_t given, enum cudaStreamCaptureStatus *status) {
    LOCKED;
    const Stream *stream = stream_of(given);
    if (stream == NULL) return failed(cudaErrorInvalidResourceHandle);
    *status = stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return done();
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    static _Thread_local enum cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;
    const enum cudaStreamCaptureMode before = own;
    own = *mode;
    *mode = before;
    return done();
}

// Nodes

cudaError_t graph_add_after(cudaGraphNode_t *into, cudaGraph_t given, const cudaGraphNode_t *before, size_t num_before,
                            Operation *operation) {
    Graph *graph = (Graph *)given;
    if (into == NULL || graph == NULL || (num_before && before == NULL)) {
        operation_free(operation);
        return failed(cudaErrorInvalidValue);
    }
    *into = add_node(graph, operation);
    for (size_t k = 0; k < num_before; k++) add_edge(graph, before[k]->index, (*into)->index);
    return done();
}

static cudaError_t of_kernel(Operation *into, const struct cudaKernelNodeParams *given) {
    if (given == NULL) return cudaErrorInvalidValue;
    if (given->extra) return not_supported("cudaGraphAddKernelNode with extra");
    const uint32_t no_cluster[3] = {0};  // but one that the kernel is compiled for
    cudaError_t error = kernel_operation(into, given->func, given->gridDim, given->blockDim, given->kernelParams, given->sharedMemBytes);
    if (error != cudaSuccess) return error;
    error = shape_of_launch(into, no_cluster, false);
    if (error != cudaSuccess) operation_free(into);
    return error;
}

static cudaError_t of_copy(Operation *into, const struct cudaMemcpy3DParms *given) {
    const cudaError_t error = box_copy_of(into, given);
    return error == cudaSuccess ? operation_check(into) : error;
}

static cudaError_t of_set(Operation *into, const struct cudaMemsetParams *given) {
    if (given == NULL) return cudaErrorInvalidValue;
    *into = (Operation){.kind = OP_SET, .to = given->dst, .to_pitch = given->pitch, .value = given->value,
                        .element = given->elementSize, .width = given->width * given->elementSize,
                        .height = given->height, .depth = 1};
    return operation_check(into);
}

#define ADDS(name, Parameters, of)                                                                                \
    cudaError_t name(cudaGraphNode_t *into, cudaGraph_t graph, const cudaGraphNode_t *before, size_t num_before,   \
                     const Parameters *given) {                                                                    \
        LOCKED;                                                                                                    \
        Operation operation;                                                                                       \
        const cudaError_t error = of(&operation, given);                                                           \
        return error == cudaSuccess ? graph_add_after(into, graph, before, num_before, &operation) : failed(error);            \
    }
ADDS(cudaGraphAddKernelNode, struct cudaKernelNodeParams, of_kernel)
ADDS(cudaGraphAddMemcpyNode, struct cudaMemcpy3DParms, of_copy)
ADDS(cudaGraphAddMemsetNode, struct cudaMemsetParams, of_set)

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *into, cudaGraph_t graph, const cudaGraphNode_t *before,
                                     size_t num_before, void *to, const void *from, size_t bytes,
                                     enum cudaMemcpyKind kind) {
    LOCKED;
    Operation operation;
    copy_of(&operation, to, bytes, from, bytes, bytes, 1, kind);
    const cudaError_t error = operation_check(&operation);
    return error == cudaSuccess ? graph_add_after(into, graph, before, num_before, &operation) : failed(error);
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *into, cudaGraph_t graph, const cudaGraphNode_t *before,
                                 size_t num_before, const struct cudaHostNodeParams *given) {
    LOCKED;
    if (given == NULL || given->fn == NULL) return failed(cudaErrorInvalidValue);
    Operation operation = {.kind = OP_HOST, .host_function = given->fn, .user = given->userData};
    return graph_add_after(into, graph, before, num_before, &operation);
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *into, cudaGraph_t graph, const cudaGraphNode_t *before,
                                  size_t num_before) {
    LOCKED;
    Operation operation = {.kind = OP_EMPTY};
    return graph_add_after(into, graph, before, num_before, &operation);
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *into, cudaGraph_t graph, const cudaGraphNode_t *before,
                                       size_t num_before, cudaGraph_t child) {
    LOCKED;
    if (child == NULL) return failed(cudaErrorInvalidValue);
    Operation operation = {.kind = OP_GRAPH, .child = graph_clone((Graph *)child)};
    return graph_add_after(into, graph, before, num_before, &operation);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     const cudaGraphEdgeData *data, size_t count) {
    (void)data;
#else
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     size_t count) {
#endif
    LOCKED;
    if (graph == NULL) return failed(cudaErrorInvalidValue);
    for (size_t k = 0; k < count; k++) add_edge((Graph *)graph, from[k]->index, to[k]->index);
    return done();
}

cudaError_t cudaGraphGetNodes(cudaGraph_t given, cudaGraphNode_t *into, size_t *count) {
    LOCKED;
    const Graph *graph = (Graph *)given;
    if (graph == NULL || count == NULL) return failed(cudaErrorInvalidValue);
    for (size_t k = 0; into && k < *count; k++) into[k] = k < graph->num_nodes ? graph->nodes[k] : NULL;
    if (into == NULL || *count > graph->num_nodes) *count = graph->num_nodes;
    return done();
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type) {
    static const enum cudaGraphNodeType types[] = {
        [OP_KERNEL] = cudaGraphNodeTypeKernel, [OP_COPY] = cudaGraphNodeTypeMemcpy, [OP_SET] = cudaGraphNodeTypeMemset,
        [OP_HOST] = cudaGraphNodeTypeHost, [OP_EVENT] = cudaGraphNodeTypeEventRecord, [OP_EMPTY] = cudaGraphNodeTypeEmpty,
        [OP_ALLOCATE] = cudaGraphNodeTypeMemAlloc,
        [OP_GRAPH] = cudaGraphNodeTypeGraph};
    if (node == NULL || type == NULL) return failed(cudaErrorInvalidValue);
    *type = types[node->operation.kind];
    return done();
}

cudaError_t cudaGraphCreate(cudaGraph_t *into, unsigned flags) {
    if (into == NULL || flags) return failed(cudaErrorInvalidValue);
    *into = (cudaGraph_t)graph_new();
    return done();
}

cudaError_t cudaGraphClone(cudaGraph_t *into, cudaGraph_t graph) {
    LOCKED;
    if (into == NULL || graph == NULL) return failed(cudaErrorInvalidValue);
    *into = (cudaGraph_t)graph_clone((Graph *)graph);
    return done();
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    LOCKED;
    if (graph == NULL) return failed(cudaErrorInvalidValue);
    graph_free((Graph *)graph);
    return done();
}

// What was instantiated: a copy of the graph, whose nodes are found by their numbers

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *into, cudaGraph_t graph, unsigned long long flags) {
    LOCKED;
    (void)flags;
    if (into == NULL || graph == NULL) return failed(cudaErrorInvalidValue);
    Graph *clone = graph_clone((Graph *)graph);
    size_t *order = calloc(clone->num_nodes + 1, sizeof *order);
    const bool is_ordered = in_order(clone, order);
    free(order);
    if (!is_ordered) {
        graph_free(clone);
        return failed(cudaErrorInvalidValue);
    }
    *into = (cudaGraphExec_t)clone;
    return done();
}

#if CUDART_VERSION >= 12000
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *into, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(into, graph, flags);
}
#else
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *into, cudaGraph_t graph, cudaGraphNode_t *wrong, char *log, size_t bytes) {
    (void)wrong, (void)log, (void)bytes;
    return cudaGraphInstantiateWithFlags(into, graph, 0);
}
#endif

cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream) {
    return graph && stream_of(stream) ? done() : failed(cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    LOCKED;
    if (graph == NULL) return failed(cudaErrorInvalidValue);
    Operation operation = {.kind = OP_GRAPH, .child = graph_clone((Graph *)graph)};
    return submit(stream, &operation);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    LOCKED;
    if (graph == NULL) return failed(cudaErrorInvalidValue);
    graph_free((Graph *)graph);
    return done();
}

static struct CUgraphNode_st *node_of(cudaGraphExec_t given, cudaGraphNode_t node) {
    const Graph *graph = (Graph *)given;
    return graph && node && node->index < graph->num_nodes ? graph->nodes[node->index] : NULL;
}

static cudaError_t replace(struct CUgraphNode_st *node, Operation *operation) {
    if (node == NULL || node->operation.kind != operation->kind) {
        operation_free(operation);
        return failed(cudaErrorInvalidValue);
    }
    operation_free(&node->operation);
    node->operation = *operation;
    return done();
}

#define SETS(name, Owner, Parameters, of, find)                                       \
    cudaError_t name(Owner cudaGraphNode_t node, const Parameters *given) {            \
        LOCKED;                                                                        \
        Operation operation;                                                           \
        const cudaError_t error = of(&operation, given);                               \
        return error == cudaSuccess ? replace(find, &operation) : failed(error);       \
    }
#define COMMA ,
SETS(cudaGraphKernelNodeSetParams, , struct cudaKernelNodeParams, of_kernel, node)
SETS(cudaGraphMemcpyNodeSetParams, , struct cudaMemcpy3DParms, of_copy, node)
SETS(cudaGraphMemsetNodeSetParams, , struct cudaMemsetParams, of_set, node)
SETS(cudaGraphExecKernelNodeSetParams, cudaGraphExec_t graph COMMA, struct cudaKernelNodeParams, of_kernel,
     node_of(graph, node))
SETS(cudaGraphExecMemcpyNodeSetParams, cudaGraphExec_t graph COMMA, struct cudaMemcpy3DParms, of_copy,
     node_of(graph, node))
SETS(cudaGraphExecMemsetNodeSetParams, cudaGraphExec_t graph COMMA, struct cudaMemsetParams, of_set,
     node_of(graph, node))

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t graph, cudaGraphNode_t node, void *to, const void *from,
                                               size_t bytes, enum cudaMemcpyKind kind) {
    LOCKED;
    Operation operation;
    copy_of(&operation, to, bytes, from, bytes, bytes, 1, kind);
    const cudaError_t error = operation_check(&operation);
    return error == cudaSuccess ? replace(node_of(graph, node), &operation) : failed(error);
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t graph, cudaGraphNode_t node,
                                           const struct cudaHostNodeParams *given) {
    LOCKED;
    if (given == NULL || given->fn == NULL) return failed(cudaErrorInvalidValue);
    Operation operation = {.kind = OP_HOST, .host_function = given->fn, .user = given->userData};
    return replace(node_of(graph, node), &operation);
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t graph, cudaGraphNode_t node, unsigned is_enabled) {
    LOCKED;
    struct CUgraphNode_st *found = node_of(graph, node);
    if (found == NULL) return failed(cudaErrorInvalidValue);
    found->is_disabled = !is_enabled;
    return done();
}

#if CUDART_VERSION >= 12000
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t given, cudaGraph_t wanted, cudaGraphExecUpdateResultInfo *result) {
    LOCKED;
    Graph *graph = (Graph *)given;
    const Graph *other = (Graph *)wanted;
    if (graph == NULL || other == NULL || result == NULL) return failed(cudaErrorInvalidValue);
    memset(result, 0, sizeof *result);
    bool is_alike = graph->num_nodes == other->num_nodes && graph->num_edges == other->num_edges;
    for (size_t k = 0; is_alike && k < graph->num_nodes; k++)
        is_alike = graph->nodes[k]->operation.kind == other->nodes[k]->operation.kind;
    result->result = is_alike ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    if (!is_alike) return failed(cudaErrorGraphExecUpdateFailure);
    for (size_t k = 0; k < graph->num_nodes; k++) {
        operation_free(&graph->nodes[k]->operation);
        graph->nodes[k]->operation = operation_copy_of(&other->nodes[k]->operation);
    }
    return done();
}
#endif
