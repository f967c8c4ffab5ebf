// RUN: covan-opt --list-passes | FileCheck %s

// CHECK:      covan's passes:
// CHECK:      prov-lower-locations  (on builtin.module)
// CHECK-NEXT:   Replaces
// CHECK-NEXT:   drop-table: bool
// CHECK:      prov-trace  (on any op)
// CHECK:      and every pass and pipeline of MLIR and torch-mlir by its name
