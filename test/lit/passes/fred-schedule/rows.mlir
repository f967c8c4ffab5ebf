// RUN: %segments %s | covan-opt -p 'func.func(fred-schedule{machine=avx512})' | FileCheck %s
// RUN: %segments %s | covan-opt -p 'func.func(fred-schedule{machine=avx2 machine-with=cores=4 override={vectors=2,unroll=1}})' | FileCheck %s --check-prefix=WITH
// RUN: %segments %s | covan-opt -p 'func.func(fred-schedule{machine=neon candidate=1})' | FileCheck %s --check-prefix=SECOND
// RUN: %segments %s | covan-opt -p 'func.func(fred-schedule{machine=neon list=true})' 2>&1 | FileCheck %s --check-prefix=LIST
// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update,fred-schedule{machine=avx512})' | FileCheck %s --check-prefix=FUSED

// Lanes along the row, as many as a register of the machine has.

// CHECK: "fred.chain"
// CHECK: predicted_seconds = {{[0-9.eE+-]+}} : f64
// CHECK-SAME: schedule = {ahead = true, block = 7 : i64, keep = [], lane = "j", lanes = 16 : i64, nontemporal = false,
// CHECK-SAME: parallel = {{\[\[}}"", {{[0-9]+}}{{\]\]}}, shape = "rows", {{.*}}stream = "j", unroll = {{[0-9]+}} : i64, vectors = 1 : i64}

// WITH: lanes = 8 : i64
// WITH-SAME: vectors = 2 : i64

// SECOND: lanes = 4 : i64

// LIST: 0: {{[0-9.eE+-]+}} s rows: shape=rows lane=j
// LIST: 1: {{[0-9.eE+-]+}} s rows: shape=rows lane=j

// FUSED: "fred.fused"
// FUSED: schedule = {ahead = {{true|false}}, block = 7
func.func @f(%x: tensor<5x7xf32>) -> tensor<5xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<5x7xf32>):
    %m = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "m", axes = ["i"], over = ["j"], combine = "max", initial = 0xFF800000 : f32} : () -> tensor<5xf32>
    %l = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      %n = "fred.read"(%m) : (tensor<5xf32>) -> f32
      %s = arith.subf %e, %n : f32
      %p = math.exp %s : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "l", axes = ["i"], over = ["j"], combine = "add", initial = 0.0 : f32} : () -> tensor<5xf32>
    "fred.output"(%l) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}
