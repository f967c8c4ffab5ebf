// RUN: %segments %s | covan-opt --split-input-file --verify-diagnostics

// A window on a step.

func.func @f(%x: tensor<4x9xf32>, %w: tensor<4x3xf32>) -> tensor<4x5xf32> {
  %y = "fred.chain"(%x, %w) ({
  ^bb0(%x_: tensor<4x9xf32>, %w_: tensor<4x3xf32>):
    %u = "fred.map"() ({
      %e = "fred.read"(%x_) : (tensor<4x9xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "u", axes = ["c", "p"]} : () -> tensor<4x9xf32>
    %v = "fred.reduce"() ({
      // expected-error@below {{reads through a window, which can be of an input only}}
      %a = "fred.window"(%u) {along = ["c", "h", "r"], at = affine_map<(c, h, r) -> (c, 2 * h + r - 1)>, outside = 0.0 : f32} : (tensor<4x9xf32>) -> f32
      %b = "fred.read"(%w_) : (tensor<4x3xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "v", axes = ["c", "h"], over = ["r"], combine = "add", initial = 0.0 : f32} : () -> tensor<4x5xf32>
    "fred.output"(%v) : (tensor<4x5xf32>) -> ()
  }) {axes = ["c", "h", "r", "p"], sizes = [4, 5, 3, 9], names = ["x", "w"], inputs = [["c", "p"], ["c", "r"]]} : (tensor<4x9xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
// -----

// An axis too few.

func.func @f(%x: tensor<4x9xf32>, %w: tensor<4x3xf32>) -> tensor<4x5xf32> {
  %y = "fred.chain"(%x, %w) ({
  ^bb0(%x_: tensor<4x9xf32>, %w_: tensor<4x3xf32>):
    %v = "fred.reduce"() ({
      // expected-error@below {{has 2 axes along, each of which must be one dimension of (d0, d1, d2) -> (d0, d1 * 2 + d2 - 1)}}
      %a = "fred.window"(%x_) {along = ["c", "h"], at = affine_map<(c, h, r) -> (c, 2 * h + r - 1)>, outside = 0.0 : f32} : (tensor<4x9xf32>) -> f32
      %b = "fred.read"(%w_) : (tensor<4x3xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "v", axes = ["c", "h"], over = ["r"], combine = "add", initial = 0.0 : f32} : () -> tensor<4x5xf32>
    "fred.output"(%v) : (tensor<4x5xf32>) -> ()
  }) {axes = ["c", "h", "r", "p"], sizes = [4, 5, 3, 9], names = ["x", "w"], inputs = [["c", "p"], ["c", "r"]]} : (tensor<4x9xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
// -----

// A position too few.

func.func @f(%x: tensor<4x9xf32>, %w: tensor<4x3xf32>) -> tensor<4x5xf32> {
  %y = "fred.chain"(%x, %w) ({
  ^bb0(%x_: tensor<4x9xf32>, %w_: tensor<4x3xf32>):
    %v = "fred.reduce"() ({
      // expected-error@below {{has 1 positions in a tensor of 2 dimensions}}
      %a = "fred.window"(%x_) {along = ["c", "h", "r"], at = affine_map<(c, h, r) -> (c)>, outside = 0.0 : f32} : (tensor<4x9xf32>) -> f32
      %b = "fred.read"(%w_) : (tensor<4x3xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "v", axes = ["c", "h"], over = ["r"], combine = "add", initial = 0.0 : f32} : () -> tensor<4x5xf32>
    "fred.output"(%v) : (tensor<4x5xf32>) -> ()
  }) {axes = ["c", "h", "r", "p"], sizes = [4, 5, 3, 9], names = ["x", "w"], inputs = [["c", "p"], ["c", "r"]]} : (tensor<4x9xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
// -----

// Positions that are no sums.

func.func @f(%x: tensor<4x9xf32>, %w: tensor<4x3xf32>) -> tensor<4x5xf32> {
  %y = "fred.chain"(%x, %w) ({
  ^bb0(%x_: tensor<4x9xf32>, %w_: tensor<4x3xf32>):
    %v = "fred.reduce"() ({
      // expected-error@below {{at must be sums of multiples of positions}}
      %a = "fred.window"(%x_) {along = ["c", "h", "r"], at = affine_map<(c, h, r) -> (c, h floordiv 2)>, outside = 0.0 : f32} : (tensor<4x9xf32>) -> f32
      %b = "fred.read"(%w_) : (tensor<4x3xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "v", axes = ["c", "h"], over = ["r"], combine = "add", initial = 0.0 : f32} : () -> tensor<4x5xf32>
    "fred.output"(%v) : (tensor<4x5xf32>) -> ()
  }) {axes = ["c", "h", "r", "p"], sizes = [4, 5, 3, 9], names = ["x", "w"], inputs = [["c", "p"], ["c", "r"]]} : (tensor<4x9xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
// -----

// No element outside.

func.func @f(%x: tensor<4x9xf32>, %w: tensor<4x3xf32>) -> tensor<4x5xf32> {
  %y = "fred.chain"(%x, %w) ({
  ^bb0(%x_: tensor<4x9xf32>, %w_: tensor<4x3xf32>):
    %v = "fred.reduce"() ({
      // expected-error@below {{gives 0 : i64 outside of the tensor, which is no f32}}
      %a = "fred.window"(%x_) {along = ["c", "h", "r"], at = affine_map<(c, h, r) -> (c, 2 * h + r - 1)>, outside = 0 : i64} : (tensor<4x9xf32>) -> f32
      %b = "fred.read"(%w_) : (tensor<4x3xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "v", axes = ["c", "h"], over = ["r"], combine = "add", initial = 0.0 : f32} : () -> tensor<4x5xf32>
    "fred.output"(%v) : (tensor<4x5xf32>) -> ()
  }) {axes = ["c", "h", "r", "p"], sizes = [4, 5, 3, 9], names = ["x", "w"], inputs = [["c", "p"], ["c", "r"]]} : (tensor<4x9xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
// -----

// An axis that the step does not run along.

func.func @f(%x: tensor<4x9xf32>, %w: tensor<4x3xf32>) -> tensor<4x5xf32> {
  // expected-error@below {{v reads x through a window along ['p'], where it has no position}}
  %y = "fred.chain"(%x, %w) ({
  ^bb0(%x_: tensor<4x9xf32>, %w_: tensor<4x3xf32>):
    %v = "fred.reduce"() ({
      %a = "fred.window"(%x_) {along = ["c", "h", "p"], at = affine_map<(c, h, r) -> (c, 2 * h + r - 1)>, outside = 0.0 : f32} : (tensor<4x9xf32>) -> f32
      %b = "fred.read"(%w_) : (tensor<4x3xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "v", axes = ["c", "h"], over = ["r"], combine = "add", initial = 0.0 : f32} : () -> tensor<4x5xf32>
    "fred.output"(%v) : (tensor<4x5xf32>) -> ()
  }) {axes = ["c", "h", "r", "p"], sizes = [4, 5, 3, 9], names = ["x", "w"], inputs = [["c", "p"], ["c", "r"]]} : (tensor<4x9xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
