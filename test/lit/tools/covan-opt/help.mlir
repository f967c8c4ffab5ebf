// RUN: covan-opt --help | FileCheck %s

// CHECK: usage: covan-opt
// CHECK: --pass-pipeline TEXT
// CHECK: examples:
// CHECK: covan-opt model.mlir -p canonicalize -p prov-strip
