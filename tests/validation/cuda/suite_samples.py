"""NVIDIA's cuda-samples, as they stood for CUDA 13.0."""

from __future__ import annotations

from self_checking import BY_STATUS, Program, Suite

_PLACES = {
    "introduction": "Samples/0_Introduction",
    "concepts": "Samples/2_Concepts_and_Techniques",
    "features": "Samples/3_CUDA_Features",
    "libraries": "Samples/4_CUDA_Libraries",
    "domains": "Samples/5_Domain_Specific",
    "speed": "Samples/6_Performance",
}


_THREADS = "Threads of the host share a generator of random numbers."
_TIME = "The inputs are random numbers from the time of day."


def _sample(place: str, name: str, arguments: str = "", *edits: tuple[str, str, str], **more: object) -> Program:
    return Program(name, f"{_PLACES[place]}/{name}", arguments=arguments, edits=edits, **more)  # type: ignore[arg-type]


PROGRAMS = (
    _sample("introduction", "vectorAdd"),
    _sample("introduction", "asyncAPI", "", ("asyncAPI.cu", "16 * 1024 * 1024", "64 * 1024"), passes=BY_STATUS),
    _sample("introduction", "fp16ScalarProduct", alike=None, why=_TIME),
    _sample("introduction", "matrixMul", "-wA=64 -hA=64 -wB=96 -hB=64", ("matrixMul.cu", "nIter = 300", "nIter = 3")),
    _sample("introduction", "mergeSort", "", ("main.cpp", "4 * 1048576", "4 * 8192"), passes="values array: OK"),
    _sample("introduction", "simpleAtomicIntrinsics", passes="returned OK"),
    _sample("introduction", "simpleCallback", passes="Success", alike=None, why=_THREADS),
    _sample("introduction", "simpleCooperativeGroups", passes=r"(is 120 \(expected 120\)\s+.*){4}"),
    _sample("introduction", "simpleMultiCopy", "", ("simpleMultiCopy.cu", "1 << 22", "1 << 14"), passes=BY_STATUS),
    _sample("introduction", "simpleOccupancy"),
    _sample("introduction", "simpleStreams", "", ("simpleStreams.cu", "16 * 1024 * 1024", "16 * 1024"),
            passes=BY_STATUS),
    _sample("introduction", "simpleTemplates", passes="(?s)Compare OK.*Compare OK.* 0 Failures", fails="MISMATCH"),
    _sample("introduction", "simpleVoteIntrinsics", passes="(?s)OK.*OK.*OK", fails="FAILED|ERROR"),
    _sample("introduction", "simpleZeroCopy", passes=BY_STATUS),
    _sample("introduction", "systemWideAtomics", passes=BY_STATUS),
    _sample("introduction", "template", passes=BY_STATUS),
    _sample("introduction", "cudaOpenMP", words="-Xcompiler -fopenmp", passes=BY_STATUS),
    _sample("concepts", "convolutionSeparable", "", ("main.cpp", "= 3072", "= 384"),
            ("main.cpp", "iterations = 16", "iterations = 1")),
    _sample("concepts", "dct8x8", "", ("dct8x8.cu", "numIterations = 100", "numIterations = 1")),
    _sample("concepts", "eigenvalues", "-matrix-size=256 -iters-timing=1", passes="Test Succeeded"),
    _sample("concepts", "histogram", "", ("main.cpp", "64 * 1048576", "3 * 65536"), ("main.cpp", "numRuns    = 16",
            "numRuns    = 1")),
    _sample("concepts", "inlinePTX", passes="Test Successful"),
    _sample("concepts", "interval", "", ("interval.h", "(100)", "(1)"), ("interval.h", "= 1024", "= 4"),
            passes=BY_STATUS),
    _sample("concepts", "radixSortThrust", "-n=20000 -iterations=1"),
    _sample("concepts", "reduction", "-n=65536", ("reduction.cpp", "testIterations = 100", "testIterations = 2")),
    _sample("concepts", "scalarProd"),
    _sample("concepts", "scan", "", ("main.cpp", "13 * 1048576 / 2", "524288"), ("main.cpp", "iCycles = 100",
            "iCycles = 1"), ("scan.cu", "64 * 1048576", "524288"), passes=BY_STATUS),
    _sample("concepts", "shfl_scan", passes=BY_STATUS),
    _sample("concepts", "sortingNetworks", "", ("main.cpp", "= 1048576", "= 8192"), passes="OK",
            fails="corrupted|\\*\\*\\*"),  # that it is "NOT stable" is so: a bitonic sort is not
    _sample("concepts", "streamOrderedAllocation"),
    _sample("concepts", "threadFenceReduction", "-n=65536", ("threadFenceReduction.cu", "testIterations = 100",
            "testIterations = 2"), passes=BY_STATUS),
    *(
        _sample("features", name, "", *((f"{name}.cu", f"{letter}_TILES {before}", f"{letter}_TILES {after}")
                                        for letter in "MNK"),
                words="-DCPU_DEBUG=1", passes="Verifying correctness", least=least)
        for name, before, after, least in (
            ("bf16TensorCoreGemm", 512, 16, 80), ("cudaTensorCoreGemm", 256, 16, 75),
            ("dmmaTensorCoreGemm", 1024, 32, 80), ("immaTensorCoreGemm", 256, 16, 75),
            ("tf32TensorCoreGemm", 512, 16, 80),
        )
    ),
    _sample("features", "globalToShmemAsyncCopy", "-wA=64 -hA=64 -wB=64 -hB=64", ("globalToShmemAsyncCopy.cu",
            "nIter = 100", "nIter = 1")),
    _sample("features", "newdelete", passes="3/3 succesfully run"),
    _sample("features", "warpAggregatedAtomicsCG", "", ("warpAggregatedAtomicsCG.cu", "10000000", "200000"),
            passes="matches GPU max"),
    _sample("features", "graphMemoryNodes"),
    _sample("libraries", "lineOfSight", "", ("lineOfSight.cu", "numIterations = 100", "numIterations = 1")),
    _sample("domains", "BlackScholes", "", ("BlackScholes.cu", "= 4000000", "= 40000"), ("BlackScholes.cu", "= 512",
            "= 2")),
    _sample("domains", "FDTD3d", "-dimx=64 -dimy=48 -dimz=32 -timesteps=3", sources="src/*.cu src/*.cpp",
            words="-Iinc", passes=BY_STATUS),
    _sample("domains", "MonteCarloMultiGPU", "", ("MonteCarloMultiGPU.cpp", "8 * 1024", "32"),
            ("MonteCarloMultiGPU.cpp", "262144", "16384")),
    _sample("domains", "SobolQRNG", "-vectors=2000 -dimensions=20", passes=BY_STATUS),
    _sample("domains", "binomialOptions", "", ("binomialOptions_common.h", "MAX_OPTIONS 1024", "MAX_OPTIONS 8")),
    _sample("domains", "dwtHaar1D", passes="Test success"),
    _sample("domains", "dxtc"),
    _sample("domains", "fastWalshTransform", "", ("fastWalshTransform.cu", "= 23", "= 14")),
    _sample("domains", "quasirandomGenerator", "", ("quasirandomGenerator.cpp", "1048576", "16384"),
            ("quasirandomGenerator.cpp", "numIterations = 20", "numIterations = 1"), passes=BY_STATUS),
    _sample("speed", "LargeKernelParameter", "", ("LargeKernelParameter.cu", "(1000)", "(2)")),
    _sample("speed", "alignedTypes", "", ("alignedTypes.cu", "50000000", "200000"), ("alignedTypes.cu",
            "NUM_ITERATIONS = 32", "NUM_ITERATIONS = 1")),
    _sample("speed", "transpose", "-dimX=128 -dimY=128", ("transpose.cu", "NUM_REPS 100", "NUM_REPS 1")),
)  # fmt: skip

_LEFT_OUT = {
    "segmentationTreeThrust": "right on sm_75 and sm_80, with `-include thrust/tuple.h`, but takes 74 CPU seconds.",
    "jacobiCudaGraphs": "right on sm_75, but takes 95 CPU seconds.",
}

SUITE = Suite(
    "cuda-samples", "cuda-samples", "https://github.com/NVIDIA/cuda-samples",
    "c94ff366aed18c797b8a85dfaac7817b0228b420", "BSD-3-Clause", PROGRAMS, "-I{root}/Common", ("Common",),
    unoptimised_every=4, left_out=_LEFT_OUT,
)  # fmt: skip
