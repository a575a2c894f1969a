// Objects of the program that graphs keep: when nobody refers to one any more, the program's function releases it.
#include <stdlib.h>

#include "runtime.h"

struct CUuserObject_st {
    struct CUuserObject_st *next;
    void *content;
    cudaHostFn_t destroy;
    uint64_t references;
};
typedef struct Kept {
    struct Kept *next;
    const Graph *graph;
    struct CUuserObject_st *object;
    uint64_t count;
} Kept;

static struct CUuserObject_st *objects;
static Kept *kept;  // by graphs

static bool is_object(cudaUserObject_t given) {
    for (struct CUuserObject_st *one = objects; one; one = one->next)
        if (one == given) return true;
    return false;
}

static void release(cudaUserObject_t object, uint64_t count) {
    object->references -= count;
    if (object->references) return;
    for (struct CUuserObject_st **place = &objects; *place; place = &(*place)->next)
        if (*place == object) {
            *place = object->next;
            break;
        }
    object->destroy(object->content);
    free(object);
}

static void keep(const Graph *graph, cudaUserObject_t object, uint64_t count) {
    Kept *made = malloc(sizeof *made);
    if (made == NULL) abort();
    *made = (Kept){kept, graph, object, count};
    kept = made;
}

void user_objects_cloned(const Graph *from, const Graph *to) {
    for (const Kept *one = kept; one; one = one->next) {
        if (one->graph != from) continue;
        one->object->references += one->count;
        keep(to, one->object, one->count);
    }
}

void user_objects_of_freed(const Graph *graph) {
    for (Kept **place = &kept; *place;) {
        Kept *one = *place;
        if (one->graph != graph) {
            place = &one->next;
            continue;
        }
        *place = one->next;
        release(one->object, one->count);
        free(one);
    }
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *into, void *content, cudaHostFn_t destroy, unsigned count, unsigned flags) {
    LOCKED;
    if (into == NULL || destroy == NULL || count == 0 || count > 0x7fffffff || flags != cudaUserObjectNoDestructorSync)
        return failed(cudaErrorInvalidValue);
    struct CUuserObject_st *made = malloc(sizeof *made);
    if (made == NULL) return failed(cudaErrorMemoryAllocation);
    *made = (struct CUuserObject_st){objects, content, destroy, count};
    *into = objects = made;
    return done();
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
    LOCKED;
    if (!is_object(object) || count == 0) return failed(cudaErrorInvalidValue);
    object->references += count;
    return done();
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
    LOCKED;
    if (!is_object(object) || count == 0 || count > object->references) return failed(cudaErrorInvalidValue);
    release(object, count);
    return done();
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
    LOCKED;
    if (graph == NULL || !is_object(object) || count == 0 || flags > cudaGraphUserObjectMove)
        return failed(cudaErrorInvalidValue);
    if (!(flags & cudaGraphUserObjectMove)) object->references += count;
    keep((const Graph *)graph, object, count);
    return done();
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
    LOCKED;
    if (!is_object(object) || count == 0) return failed(cudaErrorInvalidValue);
    for (Kept **place = &kept; *place; place = &(*place)->next) {
        Kept *one = *place;
        if (one->graph != (const Graph *)graph || one->object != object || one->count < count) continue;
        one->count -= count;
        if (one->count == 0) {
            *place = one->next;
            free(one);
        }
        release(object, count);
        return done();
    }
    return failed(cudaErrorInvalidValue);
}
