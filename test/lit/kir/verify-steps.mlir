// RUN: covan-opt %s --split-input-file --verify-diagnostics

// Operators that are no products of steps, of which is told what they are not.

// A scale that steps have not.

func.func @f(%arg0: tensor<5x7xi8>) -> tensor<5x7xf32> {
  // expected-error@+1 {{'kir.dequantize' op says that operands}}
  %1 = "kir.dequantize"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xi8>):
    %2 = "fred.map"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xi8>) -> i8
      %4 = arith.uitofp %3 : i8 to f32
      %cst_1 = arith.constant 1.210000e+02 : f32
      %5 = arith.subf %4, %cst_1 : f32
      %cst_2 = arith.constant 5.000000e-01 : f32
      %6 = arith.mulf %5, %cst_2 : f32
      "fred.yield"(%6) : (f32) -> ()
    }) {axes = ["i", "j"], value = "v0"} : () -> tensor<5x7xf32>
    "fred.output"(%2) : (tensor<5x7xf32>) -> ()
  }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, operands = [{name = "x0", scale = 0.25, signed = false, zero = 121 : i64}], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{}], sizes = [5, 7]} : (tensor<5x7xi8>) -> tensor<5x7xf32>
  return %1 : tensor<5x7xf32>
}

// -----

// Nothing of its operands.

func.func @f(%arg0: tensor<5x7xi8>) -> tensor<5x7xf32> {
  // expected-error@+1 {{'kir.dequantize' op says that operands is not told}}
  %1 = "kir.dequantize"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xi8>):
    %2 = "fred.map"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xi8>) -> i8
      %4 = arith.uitofp %3 : i8 to f32
      %cst_1 = arith.constant 1.210000e+02 : f32
      %5 = arith.subf %4, %cst_1 : f32
      %cst_2 = arith.constant 5.000000e-01 : f32
      %6 = arith.mulf %5, %cst_2 : f32
      "fred.yield"(%6) : (f32) -> ()
    }) {axes = ["i", "j"], value = "v0"} : () -> tensor<5x7xf32>
    "fred.output"(%2) : (tensor<5x7xf32>) -> ()
  }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{}], sizes = [5, 7]} : (tensor<5x7xi8>) -> tensor<5x7xf32>
  return %1 : tensor<5x7xf32>
}

// -----

// A zero point of its result.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5x7xi8> {
  // expected-error@+1 {{'kir.quantize' op says that results}}
  %1 = "kir.quantize"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %2 = "fred.map"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      %cst_3 = arith.constant 4.000000e+00 : f32
      %4 = arith.mulf %3, %cst_3 : f32
      %5 = math.roundeven %4 : f32
      %cst_4 = arith.constant 7.000000e+00 : f32
      %6 = arith.addf %5, %cst_4 : f32
      %cst_5 = arith.constant -1.280000e+02 : f32
      %7 = arith.cmpf olt, %6, %cst_5 : f32
      %8 = arith.select %7, %cst_5, %6 : f32
      %cst_6 = arith.constant 1.270000e+02 : f32
      %9 = arith.cmpf ogt, %8, %cst_6 : f32
      %10 = arith.select %9, %cst_6, %8 : f32
      %11 = arith.fptosi %10 : f32 to i32
      %12 = arith.trunci %11 : i32 to i8
      "fred.yield"(%12) : (i8) -> ()
    }) {axes = ["i", "j"], value = "v0"} : () -> tensor<5x7xi8>
    "fred.output"(%2) : (tensor<5x7xi8>) -> ()
  }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 8 : i64}], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5x7xi8>
  return %1 : tensor<5x7xi8>
}

// -----

// Other bounds.

func.func @f(%arg0: tensor<5x7xi8>) -> tensor<5x7xi8> {
  // expected-error@+1 {{'kir.requantize' op says that results}}
  %1 = "kir.requantize"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xi8>):
    %2 = "fred.map"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xi8>) -> i8
      %4 = arith.uitofp %3 : i8 to f32
      %cst_5 = arith.constant 1.210000e+02 : f32
      %5 = arith.subf %4, %cst_5 : f32
      %cst_6 = arith.constant 5.000000e-01 : f32
      %6 = arith.mulf %5, %cst_6 : f32
      %cst_7 = arith.constant 4.000000e+00 : f32
      %7 = arith.mulf %6, %cst_7 : f32
      %8 = math.roundeven %7 : f32
      %cst_8 = arith.constant 7.000000e+00 : f32
      %9 = arith.addf %8, %cst_8 : f32
      %cst_9 = arith.constant -1.280000e+02 : f32
      %10 = arith.cmpf olt, %9, %cst_9 : f32
      %11 = arith.select %10, %cst_9, %9 : f32
      %cst_10 = arith.constant 1.270000e+02 : f32
      %12 = arith.cmpf ogt, %11, %cst_10 : f32
      %13 = arith.select %12, %cst_10, %11 : f32
      %14 = arith.fptosi %13 : f32 to i32
      %15 = arith.trunci %14 : i32 to i8
      "fred.yield"(%15) : (i8) -> ()
    }) {axes = ["i", "j"], value = "v0"} : () -> tensor<5x7xi8>
    "fred.output"(%2) : (tensor<5x7xi8>) -> ()
  }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, operands = [{name = "x0", scale = 5.000000e-01 : f64, signed = false, zero = 121 : i64}], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -127 : i64, rounding = "half_even", zero = 7 : i64}], sizes = [5, 7]} : (tensor<5x7xi8>) -> tensor<5x7xi8>
  return %1 : tensor<5x7xi8>
}

// -----

// Two operands change places.

func.func @f(%arg0: tensor<5x7xi8>, %arg1: tensor<5x7xi8>) -> tensor<5x7xi8> {
  // expected-error@+1 {{'kir.add' op says that operands}}
  %1 = "kir.add"(%arg0, %arg1) ({
  ^bb0(%arg2: tensor<5x7xi8>, %arg3: tensor<5x7xi8>):
    %2 = "fred.map"() ({
      %3 = "fred.read"(%arg2) : (tensor<5x7xi8>) -> i8
      %4 = arith.uitofp %3 : i8 to f32
      %cst_7 = arith.constant 1.210000e+02 : f32
      %5 = arith.subf %4, %cst_7 : f32
      %cst_8 = arith.constant 5.000000e-01 : f32
      %6 = arith.mulf %5, %cst_8 : f32
      %7 = "fred.read"(%arg3) : (tensor<5x7xi8>) -> i8
      %8 = arith.uitofp %7 : i8 to f32
      %cst_9 = arith.constant 3.000000e+00 : f32
      %9 = arith.subf %8, %cst_9 : f32
      %cst_10 = arith.constant 2.500000e-01 : f32
      %10 = arith.mulf %9, %cst_10 : f32
      %11 = arith.addf %6, %10 : f32
      %cst_11 = arith.constant 4.000000e+00 : f32
      %12 = arith.mulf %11, %cst_11 : f32
      %13 = math.roundeven %12 : f32
      %cst_12 = arith.constant 7.000000e+00 : f32
      %14 = arith.addf %13, %cst_12 : f32
      %cst_13 = arith.constant -1.280000e+02 : f32
      %15 = arith.cmpf olt, %14, %cst_13 : f32
      %16 = arith.select %15, %cst_13, %14 : f32
      %cst_14 = arith.constant 1.270000e+02 : f32
      %17 = arith.cmpf ogt, %16, %cst_14 : f32
      %18 = arith.select %17, %cst_14, %16 : f32
      %19 = arith.fptosi %18 : f32 to i32
      %20 = arith.trunci %19 : i32 to i8
      "fred.yield"(%20) : (i8) -> ()
    }) {axes = ["i", "j"], value = "v0"} : () -> tensor<5x7xi8>
    "fred.output"(%2) : (tensor<5x7xi8>) -> ()
  }, {}) {axes = ["i", "j"], inputs = [["i", "j"], ["i", "j"]], names = ["x0", "x1"], operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, operands = [{name = "x1", scale = 2.500000e-01 : f64, signed = false, zero = 3 : i64}, {name = "x0", scale = 5.000000e-01 : f64, signed = false, zero = 121 : i64}], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}], sizes = [5, 7]} : (tensor<5x7xi8>, tensor<5x7xi8>) -> tensor<5x7xi8>
  return %1 : tensor<5x7xi8>
}

// -----

// Another table.

func.func @f(%arg0: tensor<5x7xi8>) -> tensor<5x7xi8> {
  // expected-error@+1 {{'kir.activation' op says that table}}
  %1 = "kir.activation"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xi8>):
    %2 = "fred.map"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xi8>) -> i8
      %4 = arith.uitofp %3 : i8 to f32
      %cst_6 = arith.constant 1.210000e+02 : f32
      %5 = arith.subf %4, %cst_6 : f32
      %cst_7 = arith.constant 5.000000e-01 : f32
      %6 = arith.mulf %5, %cst_7 : f32
      %cst_8 = arith.constant 0.000000e+00 : f32
      %7 = arith.maximumf %6, %cst_8 : f32
      %cst_9 = arith.constant 4.000000e+00 : f32
      %8 = arith.mulf %7, %cst_9 : f32
      %9 = math.roundeven %8 : f32
      %cst_10 = arith.constant 7.000000e+00 : f32
      %10 = arith.addf %9, %cst_10 : f32
      %cst_11 = arith.constant -1.280000e+02 : f32
      %11 = arith.cmpf olt, %10, %cst_11 : f32
      %12 = arith.select %11, %cst_11, %10 : f32
      %cst_12 = arith.constant 1.270000e+02 : f32
      %13 = arith.cmpf ogt, %12, %cst_12 : f32
      %14 = arith.select %13, %cst_12, %12 : f32
      %15 = arith.fptosi %14 : f32 to i32
      %16 = arith.trunci %15 : i32 to i8
      "fred.yield"(%16) : (i8) -> ()
    }) {axes = ["i", "j"], value = "v0"} : () -> tensor<5x7xi8>
    "fred.output"(%2) : (tensor<5x7xi8>) -> ()
  }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, operands = [{name = "x0", scale = 5.000000e-01 : f64, signed = false, zero = 121 : i64}], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}], sizes = [5, 7], table = [6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63, 65, 67, 69, 71, 73, 75, 77, 79, 81, 83, 85, 87, 89, 91, 93, 95, 97, 99, 101, 103, 105, 107, 109, 111, 113, 115, 117, 119, 121, 123, 125, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127]} : (tensor<5x7xi8>) -> tensor<5x7xi8>
  return %1 : tensor<5x7xi8>
}

// -----

// The average, which is the largest.

#map2 = affine_map<(d0, d1, d2, d3) -> (0, 0, d0 + d2, d1 + d3)>
func.func @f(%arg0: tensor<1x1x7x8xf32>) -> tensor<1x1x5x7xi8> {
  // expected-error@+1 {{'kir.pooling' op says that mode}}
  %4 = "kir.pooling"(%arg0) ({
  ^bb0(%arg1: tensor<1x1x7x8xf32>):
    %5 = "fred.reduce"() ({
      %7 = "fred.window"(%arg1) {along = ["k", "l", "o", "q"], at = #map2, outside = 0.000000e+00 : f32} : (tensor<1x1x7x8xf32>) -> f32
      "fred.yield"(%7) : (f32) -> ()
    }) {axes = ["i", "j", "k", "l"], combine = "max", initial = 0xFF800000 : f32, over = ["o", "q"], value = "v0"} : () -> tensor<1x1x5x7xf32>
    %6 = "fred.map"() ({
      %7 = "fred.read"(%5) : (tensor<1x1x5x7xf32>) -> f32
      %cst_4 = arith.constant 4.000000e+00 : f32
      %8 = arith.mulf %7, %cst_4 : f32
      %9 = math.roundeven %8 : f32
      %cst_5 = arith.constant 7.000000e+00 : f32
      %10 = arith.addf %9, %cst_5 : f32
      %cst_6 = arith.constant -1.280000e+02 : f32
      %11 = arith.cmpf olt, %10, %cst_6 : f32
      %12 = arith.select %11, %cst_6, %10 : f32
      %cst_7 = arith.constant 1.270000e+02 : f32
      %13 = arith.cmpf ogt, %12, %cst_7 : f32
      %14 = arith.select %13, %cst_7, %12 : f32
      %15 = arith.fptosi %14 : f32 to i32
      %16 = arith.trunci %15 : i32 to i8
      "fred.yield"(%16) : (i8) -> ()
    }) {axes = ["i", "j", "k", "l"], value = "v1"} : () -> tensor<1x1x5x7xi8>
    "fred.output"(%6) : (tensor<1x1x5x7xi8>) -> ()
  }, {}) {accumulator = "f32", axes = ["i", "j", "k", "l", "m", "n", "o", "p", "q", "r"], inputs = [["m", "n", "p", "r"]], mode = "average", names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, over = ["o", "q"], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}], sizes = [1, 1, 5, 7, 1, 1, 3, 7, 2, 8]} : (tensor<1x1x7x8xf32>) -> tensor<1x1x5x7xi8>
  return %4 : tensor<1x1x5x7xi8>
}

// -----

// Along another axis.

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0, d1 - 3)>
func.func @f(%arg0: tensor<5x3xi8>, %arg1: tensor<5x4xi8>) -> tensor<5x7xi8> {
  // expected-error@+1 {{'kir.concat' op says that over}}
  %0 = "kir.concat"(%arg0, %arg1) ({
  ^bb0(%arg2: tensor<5x3xi8>, %arg3: tensor<5x4xi8>):
    %3 = "fred.map"() ({
      %4 = "fred.index"() {axis = "j"} : () -> index
      %c3 = arith.constant 3 : index
      %5 = arith.cmpi ult, %4, %c3 : index
      %6 = "fred.window"(%arg2) {along = ["i", "j"], at = #map, outside = 0 : i8} : (tensor<5x3xi8>) -> i8
      %7 = "fred.window"(%arg3) {along = ["i", "j"], at = #map1, outside = 0 : i8} : (tensor<5x4xi8>) -> i8
      %8 = arith.select %5, %6, %7 : i8
      "fred.yield"(%8) : (i8) -> ()
    }) {axes = ["i", "j"], value = "v0"} : () -> tensor<5x7xi8>
    "fred.output"(%3) : (tensor<5x7xi8>) -> ()
  }, {}) {axes = ["i", "j", "k", "l"], inputs = [["i", "k"], ["i", "l"]], names = ["x0", "x1"], operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, over = ["i"], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{}], sizes = [5, 7, 3, 4]} : (tensor<5x3xi8>, tensor<5x4xi8>) -> tensor<5x7xi8>
  return %0 : tensor<5x7xi8>
}

// -----

// Over another axis.

func.func @f(%arg0: tensor<5x7xi8>) -> tensor<5x7xf32> {
  // expected-error@+1 {{'kir.softmax' op says that over}}
  %0 = "kir.softmax"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xi8>):
    %1 = "fred.map"() ({
      %6 = "fred.read"(%arg1) : (tensor<5x7xi8>) -> i8
      %7 = arith.sitofp %6 : i8 to f32
      %cst = arith.constant 5.000000e-01 : f32
      %8 = arith.mulf %7, %cst : f32
      "fred.yield"(%8) : (f32) -> ()
    }) {axes = ["i", "j"], value = "v0"} : () -> tensor<5x7xf32>
    %2 = "fred.reduce"() ({
      %6 = "fred.read"(%1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%6) : (f32) -> ()
    }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v1"} : () -> tensor<5xf32>
    %3 = "fred.map"() ({
      %6 = "fred.read"(%1) : (tensor<5x7xf32>) -> f32
      %7 = "fred.read"(%2) : (tensor<5xf32>) -> f32
      %8 = arith.subf %6, %7 : f32
      %9 = math.exp %8 : f32
      "fred.yield"(%9) : (f32) -> ()
    }) {axes = ["i", "j"], value = "v2"} : () -> tensor<5x7xf32>
    %4 = "fred.reduce"() ({
      %6 = "fred.read"(%3) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%6) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v3"} : () -> tensor<5xf32>
    %5 = "fred.map"() ({
      %6 = "fred.read"(%3) : (tensor<5x7xf32>) -> f32
      %7 = "fred.read"(%4) : (tensor<5xf32>) -> f32
      %8 = arith.divf %6, %7 : f32
      "fred.yield"(%8) : (f32) -> ()
    }) {axes = ["i", "j"], value = "v4"} : () -> tensor<5x7xf32>
    "fred.output"(%5) : (tensor<5x7xf32>) -> ()
  }, {}) {accumulator = "f32", axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, operands = [{name = "x0", scale = 5.000000e-01 : f64, signed = true, zero = 0 : i64}], over = ["i"], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{}], sizes = [5, 7]} : (tensor<5x7xi8>) -> tensor<5x7xf32>
  return %0 : tensor<5x7xf32>
}

// -----

// In another element type.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5x7xf32> {
  // expected-error@+1 {{'kir.norm' op says that accumulator}}
  %0 = "kir.norm"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      %4 = arith.mulf %3, %3 : f32
      "fred.yield"(%4) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v0"} : () -> tensor<5xf32>
    %2 = "fred.map"() ({
      %3 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      %4 = "fred.read"(%1) : (tensor<5xf32>) -> f32
      %cst = arith.constant 7.000000e+00 : f32
      %5 = arith.divf %4, %cst : f32
      %cst_0 = arith.constant 9.99999974E-6 : f32
      %6 = arith.addf %5, %cst_0 : f32
      %7 = math.rsqrt %6 : f32
      %8 = arith.mulf %3, %7 : f32
      "fred.yield"(%8) : (f32) -> ()
    }) {axes = ["i", "j"], value = "v1"} : () -> tensor<5x7xf32>
    "fred.output"(%2) : (tensor<5x7xf32>) -> ()
  }, {}) {accumulator = "f64", axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, over = ["j"], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{}], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5x7xf32>
  return %0 : tensor<5x7xf32>
}

// -----

// The name of another.

func.func @f(%arg0: tensor<5x7xi8>, %arg1: tensor<5x7xi8>) -> tensor<5x7xi8> {
  // expected-error@+1 {{'kir.add' op has the region of a kir.mul}}
  %1 = "kir.add"(%arg0, %arg1) ({
  ^bb0(%arg2: tensor<5x7xi8>, %arg3: tensor<5x7xi8>):
    %2 = "fred.map"() ({
      %3 = "fred.read"(%arg2) : (tensor<5x7xi8>) -> i8
      %4 = arith.uitofp %3 : i8 to f32
      %cst_7 = arith.constant 1.210000e+02 : f32
      %5 = arith.subf %4, %cst_7 : f32
      %cst_8 = arith.constant 5.000000e-01 : f32
      %6 = arith.mulf %5, %cst_8 : f32
      %7 = "fred.read"(%arg3) : (tensor<5x7xi8>) -> i8
      %8 = arith.uitofp %7 : i8 to f32
      %cst_9 = arith.constant 3.000000e+00 : f32
      %9 = arith.subf %8, %cst_9 : f32
      %cst_10 = arith.constant 2.500000e-01 : f32
      %10 = arith.mulf %9, %cst_10 : f32
      %11 = arith.mulf %6, %10 : f32
      %cst_11 = arith.constant 4.000000e+00 : f32
      %12 = arith.mulf %11, %cst_11 : f32
      %13 = math.roundeven %12 : f32
      %cst_12 = arith.constant 7.000000e+00 : f32
      %14 = arith.addf %13, %cst_12 : f32
      %cst_13 = arith.constant -1.280000e+02 : f32
      %15 = arith.cmpf olt, %14, %cst_13 : f32
      %16 = arith.select %15, %cst_13, %14 : f32
      %cst_14 = arith.constant 1.270000e+02 : f32
      %17 = arith.cmpf ogt, %16, %cst_14 : f32
      %18 = arith.select %17, %cst_14, %16 : f32
      %19 = arith.fptosi %18 : f32 to i32
      %20 = arith.trunci %19 : i32 to i8
      "fred.yield"(%20) : (i8) -> ()
    }) {axes = ["i", "j"], value = "v0"} : () -> tensor<5x7xi8>
    "fred.output"(%2) : (tensor<5x7xi8>) -> ()
  }, {}) {axes = ["i", "j"], inputs = [["i", "j"], ["i", "j"]], names = ["x0", "x1"], operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, operands = [{name = "x0", scale = 5.000000e-01 : f64, signed = false, zero = 121 : i64}, {name = "x1", scale = 2.500000e-01 : f64, signed = false, zero = 3 : i64}], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}], sizes = [5, 7]} : (tensor<5x7xi8>, tensor<5x7xi8>) -> tensor<5x7xi8>
  return %1 : tensor<5x7xi8>
}
