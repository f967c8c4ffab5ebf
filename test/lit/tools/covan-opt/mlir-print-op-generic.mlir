// RUN: covan-opt %s --mlir-print-op-generic | FileCheck %s

// CHECK: "builtin.module"() ({
// CHECK: "func.func"() <{{.*}}sym_name = "f"
func.func private @f()
