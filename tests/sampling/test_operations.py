"""Kinds of operations by the names of methods, and of units by their stacks."""

from __future__ import annotations

import pytest

from manyscale.sampling.simprof.stack_population import KNOWN, OTHER, kinds_of


@pytest.mark.parametrize(("name", "kind"), [
    ("java.util.TimSort.mergeAt", "sort"),
    ("java.util.ArrayList.sort", "sort"),
    ("org.apache.spark.util.collection.unsafe.sort.UnsafeInMemorySorter.getSortedIterator", "sort"),
    ("mainQSort3.constprop.0", "sort"),
    ("std::sort<int*>(int*, int*)", "sort"),
    ("org.apache.spark.sql.execution.aggregate.SortBasedAggregationIterator.next", "reduce"),
    ("org.apache.hadoop.mapreduce.Reducer.run", "reduce"),
    ("org.apache.hadoop.mapred.Task$NewCombinerRunner.combine", "reduce"),
    ("WC.map", "map"),
    ("TokenizerMapper.run", "map"),
    ("org.apache.spark.rdd.MapPartitionsRDD.compute", "map"),
    ("java.io.ObjectOutputStream.writeObject0", "io"),
    ("org.apache.hadoop.mapreduce.lib.input.LineRecordReader.nextKeyValue", "io"),
    ("fwrite", "io"),
    ("write@@GLIBC_2.2.5", "io"),
    ("java.util.HashMap.putVal", OTHER),
    ("org.apache.spark.shuffle.sort.BypassMergeSortShuffleWriter.write", OTHER),
    ("java.lang.Thread.run", OTHER),
    ("generateMTFValues", OTHER),
])  # fmt: skip
def test_names_of_libraries(name: str, kind: str) -> None:
    kinds, found = kinds_of([name])
    assert kinds[found[0]] == kind  # -1 is the last one, other


def test_patterns_of_the_user_come_first() -> None:
    kinds, found = kinds_of(["WC.sort", "WC.hash", "WC.map"], {"hash": r"\.hash$", "map": r"\.sort$"})
    assert kinds == ("hash", "map", *[kind for kind in KNOWN if kind != "map"], OTHER)
    assert [kinds[each] for each in found] == ["map", "hash", "map"]
