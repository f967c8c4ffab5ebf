// Plain attention as a chain of reductions, for docs/fused-reductions.md.

func.func @attention(%arg0: tensor<2x6x8xf32>, %arg1: tensor<2x40x8xf32>, %arg2: tensor<2x40x5xf32>) -> tensor<2x6x5xf32> {
  %0 = "fred.chain"(%arg0, %arg1, %arg2) ({
  ^bb0(%arg3: tensor<2x6x8xf32>, %arg4: tensor<2x40x8xf32>, %arg5: tensor<2x40x5xf32>):
    %1 = "fred.reduce"() ({
      %9 = "fred.read"(%arg3) : (tensor<2x6x8xf32>) -> f32
      %10 = "fred.read"(%arg4) : (tensor<2x40x8xf32>) -> f32
      %11 = arith.mulf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["h", "i", "j"], combine = "add", initial = 0.000000e+00 : f32, over = ["d"], value = "s"} : () -> tensor<2x6x40xf32>
    %2 = "fred.map"() ({
      %9 = "fred.read"(%1) : (tensor<2x6x40xf32>) -> f32
      %cst = arith.constant 2.500000e-01 : f32
      %10 = arith.mulf %9, %cst : f32
      "fred.yield"(%10) : (f32) -> ()
    }) {axes = ["h", "i", "j"], value = "scaled"} : () -> tensor<2x6x40xf32>
    %3 = "fred.reduce"() ({
      %9 = "fred.read"(%2) : (tensor<2x6x40xf32>) -> f32
      "fred.yield"(%9) : (f32) -> ()
    }) {axes = ["h", "i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "m"} : () -> tensor<2x6xf32>
    %4 = "fred.map"() ({
      %9 = "fred.read"(%2) : (tensor<2x6x40xf32>) -> f32
      %10 = "fred.read"(%3) : (tensor<2x6xf32>) -> f32
      %11 = arith.subf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["h", "i", "j"], value = "e"} : () -> tensor<2x6x40xf32>
    %5 = "fred.map"() ({
      %9 = "fred.read"(%4) : (tensor<2x6x40xf32>) -> f32
      %10 = math.exp %9 : f32
      "fred.yield"(%10) : (f32) -> ()
    }) {axes = ["h", "i", "j"], value = "p"} : () -> tensor<2x6x40xf32>
    %6 = "fred.reduce"() ({
      %9 = "fred.read"(%5) : (tensor<2x6x40xf32>) -> f32
      "fred.yield"(%9) : (f32) -> ()
    }) {axes = ["h", "i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<2x6xf32>
    %7 = "fred.map"() ({
      %9 = "fred.read"(%5) : (tensor<2x6x40xf32>) -> f32
      %10 = "fred.read"(%6) : (tensor<2x6xf32>) -> f32
      %11 = arith.divf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["h", "i", "j"], value = "y"} : () -> tensor<2x6x40xf32>
    %8 = "fred.reduce"() ({
      %9 = "fred.read"(%7) : (tensor<2x6x40xf32>) -> f32
      %10 = "fred.read"(%arg5) : (tensor<2x40x5xf32>) -> f32
      %11 = arith.mulf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["h", "i", "e"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "o"} : () -> tensor<2x6x5xf32>
    "fred.output"(%8) : (tensor<2x6x5xf32>) -> ()
  }) {axes = ["h", "i", "j", "d", "e"], inputs = [["h", "i", "d"], ["h", "j", "d"], ["h", "j", "e"]], names = ["q", "k", "v"], operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, sizes = [2, 6, 40, 8, 5]} : (tensor<2x6x8xf32>, tensor<2x40x8xf32>, tensor<2x40x5xf32>) -> tensor<2x6x5xf32>
  return %0 : tensor<2x6x5xf32>
}
