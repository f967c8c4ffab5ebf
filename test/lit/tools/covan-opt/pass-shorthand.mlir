// RUN: covan-opt %s -p canonicalize{test-convergence=true} -p 'func.func(cse)' -p prov-lower-locations{drop-table} | FileCheck %s

// -p names one pass each, in the order they run, with options as in a pipeline; a bool named alone is true.

// CHECK-NOT: prov.table
// CHECK-NOT: arith.addi
module {
  "prov.table"() ({
  }) : () -> ()
  func.func @f() {
    %0 = arith.constant 1 : i32
    %1 = arith.addi %0, %0 : i32
    return
  }
}
