/* load LIBRARY ARGUMENTS: runs the main function of a shared library, which brings its own OpenMP runtime. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(int, char **);
    if (!library || !(*(void **)&run = dlsym(library, "main"))) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    return run(argc - 1, argv + 1);
}
