// RUN: covan-opt %s --pass-pipeline='builtin.module(func.func(canonicalize,prov-trace,cse),prov-strip)' | FileCheck %s
// RUN: covan-opt %s -pass-pipeline='builtin.module(cse)' | FileCheck %s --check-prefix=CSE
// RUN: covan-opt %s --pass-pipeline='builtin.module()' | FileCheck %s --check-prefix=NONE

// Covan's passes stand among MLIR's, at any nesting. Long flags take one dash or two.

// CHECK-LABEL: func.func @f
// CHECK-NEXT:    %[[C:.*]] = arith.constant 2 : i32
// CHECK-NEXT:    return %[[C]]
// CSE-LABEL: func.func @f
// CSE:         arith.constant 1 : i32
// CSE-NOT:     arith.constant 1 : i32
// NONE-LABEL: func.func @f
// NONE:         arith.constant 1 : i32
// NONE-NEXT:    arith.constant 1 : i32
func.func @f() -> i32 {
  %0 = arith.constant 1 : i32
  %1 = arith.constant 1 : i32
  %2 = arith.addi %0, %1 : i32
  return %2 : i32
}
