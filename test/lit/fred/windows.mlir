// RUN: %segments %s | covan-opt | covan-opt | FileCheck %s
// RUN: %segments %s | covan-opt --emit-bytecode | covan-opt | FileCheck %s
// RUN: %segments %s | covan-opt -p canonicalize -p cse | FileCheck %s
// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update)' | FileCheck %s
// RUN: %segments %s | covan-opt -p 'func.func(fred-print)' 2>&1 | FileCheck %s --check-prefix=TEXT

// A window prints, parses and goes through bytecode; a chain that has one has no fused form, and stays a chain.

// CHECK: #[[AT:.*]] = affine_map<(d0, d1, d2) -> (d0, d1 * 2 + d2 - 1)>
// CHECK-LABEL: func.func @f(
// CHECK: "fred.chain"(%{{.*}}, %{{.*}}) ({
// CHECK: "fred.window"(%{{.*}}) {along = ["c", "h", "r"], at = #[[AT]], outside = 0.000000e+00 : f32} : (tensor<4x9xf32>) -> f32
// CHECK: inputs = {{\[\[}}"c", "p"], ["c", "r"]]
// TEXT: v[c, h]: f32 = add[r] (x[c, 2h + r - 1 else 0] * w)
func.func @f(%x: tensor<4x9xf32>, %w: tensor<4x3xf32>) -> tensor<4x5xf32> {
  %y = "fred.chain"(%x, %w) ({
  ^bb0(%x_: tensor<4x9xf32>, %w_: tensor<4x3xf32>):
    %v = "fred.reduce"() ({
      %a = "fred.window"(%x_) {along = ["c", "h", "r"], at = affine_map<(c, h, r) -> (c, 2 * h + r - 1)>, outside = 0.0 : f32} : (tensor<4x9xf32>) -> f32
      %b = "fred.read"(%w_) : (tensor<4x3xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "v", axes = ["c", "h"], over = ["r"], combine = "add", initial = 0.0 : f32} : () -> tensor<4x5xf32>
    "fred.output"(%v) : (tensor<4x5xf32>) -> ()
  }) {axes = ["c", "h", "r", "p"], sizes = [4, 5, 3, 9], names = ["x", "w"], inputs = [["c", "p"], ["c", "r"]]} : (tensor<4x9xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
