// RUN: %segments %s | covan-opt --split-input-file --verify-diagnostics -p 'func.func(fred-certify{report=false})'

// A repair with the wrong sign, and a loop that follows it.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%3) : (f32) -> ()
    }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "m"} : () -> tensor<5xf32>
    %2 = "fred.reduce"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      %4 = "fred.read"(%1) : (tensor<5xf32>) -> f32
      %5 = arith.subf %3, %4 : f32
      %6 = math.exp %5 : f32
      "fred.yield"(%6) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%2) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    %1:2 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>, %arg3: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %8 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%8) : (f32) -> ()
      }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "m.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %8 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %9 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %10 = arith.maximumf %8, %9 : f32
        "fred.yield"(%10) : (f32) -> ()
      }) {axes = ["i"], value = "m.new"} : () -> tensor<5xf32>
      %4 = "fred.map"() ({
        %8 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %9 = arith.cmpf oeq, %8, %cst : f32
        %cst_0 = arith.constant 0.000000e+00 : f32
        %10 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %11 = arith.select %9, %cst_0, %10 : f32
        "fred.yield"(%11) : (f32) -> ()
      }) {axes = ["i"], guard = "x = [-inf, -inf, 0.0]: l would be nan, the chain has 1", value = "m.safe"} : () -> tensor<5xf32>
      %5 = "fred.map"() ({
        %8 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %9 = arith.cmpf oeq, %8, %cst : f32
        %10 = "fred.read"(%4) : (tensor<5xf32>) -> f32
        %11 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %12 = arith.select %9, %10, %11 : f32
        "fred.yield"(%12) : (f32) -> ()
      }) {axes = ["i"], value = "m.from_old"} : () -> tensor<5xf32>
      %6 = "fred.reduce"() ({
        %8 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        %9 = "fred.read"(%4) : (tensor<5xf32>) -> f32
        %10 = arith.subf %8, %9 : f32
        %11 = math.exp %10 : f32
        "fred.yield"(%11) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      // expected-error@below {{l: the repair is refuted}}
      "fred.repair"() ({
        %8 = "fred.read"(%arg3) : (tensor<5xf32>) -> f32
        %9 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %10 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %11 = arith.subf %10, %9 : f32
        %12 = math.exp %11 : f32
        %13 = arith.mulf %8, %12 : f32
        "fred.yield"(%13) : (f32) -> ()
      }) {helpers = [], kind = "multiplicative", statistics = ["m"], value = "l"} : () -> ()
      %7 = "fred.map"() ({
        %8 = "fred.read"(%arg3) : (tensor<5xf32>) -> f32
        %9 = "fred.read"(%5) : (tensor<5xf32>) -> f32
        %10 = "fred.read"(%4) : (tensor<5xf32>) -> f32
        %11 = arith.subf %10, %9 : f32
        %12 = math.exp %11 : f32
        %13 = arith.mulf %8, %12 : f32
        %14 = "fred.read"(%6) : (tensor<5xf32>) -> f32
        %15 = arith.addf %13, %14 : f32
        "fred.yield"(%15) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%3) : (tensor<5xf32>) -> ()
      "fred.next"(%7) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>, %arg3: tensor<5xf32>):
      %2 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], value = "m"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %5 = arith.cmpf oeq, %4, %cst : f32
        %cst_0 = arith.constant 0x7FC00000 : f32
        %6 = "fred.read"(%arg3) : (tensor<5xf32>) -> f32
        %7 = arith.select %5, %cst_0, %6 : f32
        "fred.yield"(%7) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>, %arg3: tensor<5xf32>, %arg4: tensor<5xf32>, %arg5: tensor<5xf32>):
      %2 = "fred.map"() ({
        %7 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %8 = "fred.read"(%arg4) : (tensor<5xf32>) -> f32
        %9 = arith.maximumf %7, %8 : f32
        "fred.yield"(%9) : (f32) -> ()
      }) {axes = ["i"], value = "m.new"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %7 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %8 = arith.cmpf oeq, %7, %cst : f32
        %cst_0 = arith.constant 0.000000e+00 : f32
        %9 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %10 = arith.select %8, %cst_0, %9 : f32
        "fred.yield"(%10) : (f32) -> ()
      }) {axes = ["i"], value = "m.safe"} : () -> tensor<5xf32>
      %4 = "fred.map"() ({
        %7 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %8 = arith.cmpf oeq, %7, %cst : f32
        %9 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %10 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %11 = arith.select %8, %9, %10 : f32
        "fred.yield"(%11) : (f32) -> ()
      }) {axes = ["i"], value = "m.from_a"} : () -> tensor<5xf32>
      %5 = "fred.map"() ({
        %7 = "fred.read"(%arg4) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %8 = arith.cmpf oeq, %7, %cst : f32
        %9 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %10 = "fred.read"(%arg4) : (tensor<5xf32>) -> f32
        %11 = arith.select %8, %9, %10 : f32
        "fred.yield"(%11) : (f32) -> ()
      }) {axes = ["i"], value = "m.from_b"} : () -> tensor<5xf32>
      %6 = "fred.map"() ({
        %7 = "fred.read"(%arg3) : (tensor<5xf32>) -> f32
        %8 = "fred.read"(%4) : (tensor<5xf32>) -> f32
        %9 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %10 = arith.subf %9, %8 : f32
        %11 = math.exp %10 : f32
        %12 = arith.mulf %7, %11 : f32
        %13 = "fred.read"(%arg5) : (tensor<5xf32>) -> f32
        %14 = "fred.read"(%5) : (tensor<5xf32>) -> f32
        %15 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %16 = arith.subf %15, %14 : f32
        %17 = math.exp %16 : f32
        %18 = arith.mulf %13, %17 : f32
        %19 = arith.addf %12, %18 : f32
        "fred.yield"(%19) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
      "fred.next"(%6) : (tensor<5xf32>) -> ()
    }) {axes = ["j"], initials = [0xFF800000 : f32, 0.000000e+00 : f32], state_axes = [["i"], ["i"]], states = ["m", "l"]} : () -> (tensor<5xf32>, tensor<5xf32>)
    "fred.output"(%1#1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A right repair, and a loop that forgets it.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%3) : (f32) -> ()
    }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "m"} : () -> tensor<5xf32>
    %2 = "fred.reduce"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      %4 = "fred.read"(%1) : (tensor<5xf32>) -> f32
      %5 = arith.subf %3, %4 : f32
      %6 = math.exp %5 : f32
      "fred.yield"(%6) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%2) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    %1:2 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>, %arg3: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %8 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%8) : (f32) -> ()
      }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "m.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %8 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %9 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %10 = arith.maximumf %8, %9 : f32
        "fred.yield"(%10) : (f32) -> ()
      }) {axes = ["i"], value = "m.new"} : () -> tensor<5xf32>
      %4 = "fred.map"() ({
        %8 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %9 = arith.cmpf oeq, %8, %cst : f32
        %cst_0 = arith.constant 0.000000e+00 : f32
        %10 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %11 = arith.select %9, %cst_0, %10 : f32
        "fred.yield"(%11) : (f32) -> ()
      }) {axes = ["i"], guard = "x = [-inf, -inf, 0.0]: l would be nan, the chain has 1", value = "m.safe"} : () -> tensor<5xf32>
      %5 = "fred.map"() ({
        %8 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %9 = arith.cmpf oeq, %8, %cst : f32
        %10 = "fred.read"(%4) : (tensor<5xf32>) -> f32
        %11 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %12 = arith.select %9, %10, %11 : f32
        "fred.yield"(%12) : (f32) -> ()
      }) {axes = ["i"], value = "m.from_old"} : () -> tensor<5xf32>
      %6 = "fred.reduce"() ({
        %8 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        %9 = "fred.read"(%4) : (tensor<5xf32>) -> f32
        %10 = arith.subf %8, %9 : f32
        %11 = math.exp %10 : f32
        "fred.yield"(%11) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      "fred.repair"() ({
        %8 = "fred.read"(%arg3) : (tensor<5xf32>) -> f32
        %9 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %10 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %11 = arith.subf %9, %10 : f32
        %12 = math.exp %11 : f32
        %13 = arith.mulf %8, %12 : f32
        "fred.yield"(%13) : (f32) -> ()
      }) {helpers = [], kind = "multiplicative", statistics = ["m"], value = "l"} : () -> ()
      // expected-error@below {{l.new: is not what follows from the chain and its repairs}}
      %7 = "fred.map"() ({
        %8 = "fred.read"(%arg3) : (tensor<5xf32>) -> f32
        %9 = "fred.read"(%5) : (tensor<5xf32>) -> f32
        %10 = "fred.read"(%4) : (tensor<5xf32>) -> f32
        %11 = arith.subf %9, %10 : f32
        %12 = math.exp %11 : f32
        %13 = arith.mulf %8, %12 : f32
        %14 = "fred.read"(%6) : (tensor<5xf32>) -> f32
        %15 = arith.addf %8, %14 : f32
        "fred.yield"(%15) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%3) : (tensor<5xf32>) -> ()
      "fred.next"(%7) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>, %arg3: tensor<5xf32>):
      %2 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], value = "m"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %5 = arith.cmpf oeq, %4, %cst : f32
        %cst_0 = arith.constant 0x7FC00000 : f32
        %6 = "fred.read"(%arg3) : (tensor<5xf32>) -> f32
        %7 = arith.select %5, %cst_0, %6 : f32
        "fred.yield"(%7) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>, %arg3: tensor<5xf32>, %arg4: tensor<5xf32>, %arg5: tensor<5xf32>):
      %2 = "fred.map"() ({
        %7 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %8 = "fred.read"(%arg4) : (tensor<5xf32>) -> f32
        %9 = arith.maximumf %7, %8 : f32
        "fred.yield"(%9) : (f32) -> ()
      }) {axes = ["i"], value = "m.new"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %7 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %8 = arith.cmpf oeq, %7, %cst : f32
        %cst_0 = arith.constant 0.000000e+00 : f32
        %9 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %10 = arith.select %8, %cst_0, %9 : f32
        "fred.yield"(%10) : (f32) -> ()
      }) {axes = ["i"], value = "m.safe"} : () -> tensor<5xf32>
      %4 = "fred.map"() ({
        %7 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %8 = arith.cmpf oeq, %7, %cst : f32
        %9 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %10 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %11 = arith.select %8, %9, %10 : f32
        "fred.yield"(%11) : (f32) -> ()
      }) {axes = ["i"], value = "m.from_a"} : () -> tensor<5xf32>
      %5 = "fred.map"() ({
        %7 = "fred.read"(%arg4) : (tensor<5xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %8 = arith.cmpf oeq, %7, %cst : f32
        %9 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %10 = "fred.read"(%arg4) : (tensor<5xf32>) -> f32
        %11 = arith.select %8, %9, %10 : f32
        "fred.yield"(%11) : (f32) -> ()
      }) {axes = ["i"], value = "m.from_b"} : () -> tensor<5xf32>
      %6 = "fred.map"() ({
        %7 = "fred.read"(%arg3) : (tensor<5xf32>) -> f32
        %8 = "fred.read"(%4) : (tensor<5xf32>) -> f32
        %9 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %10 = arith.subf %8, %9 : f32
        %11 = math.exp %10 : f32
        %12 = arith.mulf %7, %11 : f32
        %13 = "fred.read"(%arg5) : (tensor<5xf32>) -> f32
        %14 = "fred.read"(%5) : (tensor<5xf32>) -> f32
        %15 = "fred.read"(%3) : (tensor<5xf32>) -> f32
        %16 = arith.subf %14, %15 : f32
        %17 = math.exp %16 : f32
        %18 = arith.mulf %13, %17 : f32
        %19 = arith.addf %12, %18 : f32
        "fred.yield"(%19) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
      "fred.next"(%6) : (tensor<5xf32>) -> ()
    }) {axes = ["j"], initials = [0xFF800000 : f32, 0.000000e+00 : f32], state_axes = [["i"], ["i"]], states = ["m", "l"]} : () -> (tensor<5xf32>, tensor<5xf32>)
    "fred.output"(%1#1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}
