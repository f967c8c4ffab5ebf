// RUN: covan-opt %s -p 'func.func(kir-raise)' | FileCheck %s
// RUN: covan-opt %s -p 'func.func(kir-raise,kir-lower)' -o %t.mlir
// RUN: FileCheck %s --check-prefix=BACK < %t.mlir
// RUN: covan-opt %t.mlir -p 'func.func(kir-raise)' | FileCheck %s

// What no kernel takes in, of a program that computes with steps: each operator holds the ops that it was made of, and
// gives them back as they were.

#id = affine_map<(i, j) -> (i, j)>
#four = affine_map<(a, b, i, j) -> (a, b, i, j)>

// Numbers as steps.

// CHECK-LABEL: func.func @quantize
// CHECK: "kir.quantize"(%arg0)
// CHECK: results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}]
// BACK-LABEL: func.func @quantize
// BACK-NOT: {{"kir\.|kir.number}}
func.func @quantize(%x: tensor<5x7xf32>) -> tensor<5x7xi8> {
  %inverse = arith.constant 4.0 : f32
  %zero = arith.constant 7.0 : f32
  %least = arith.constant -128.0 : f32
  %largest = arith.constant 127.0 : f32
  %e = tensor.empty() : tensor<5x7xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<5x7xf32>) outs(%e : tensor<5x7xi8>) {
  ^bb0(%p: f32, %o: i8):
    %s0 = arith.mulf %p, %inverse : f32
    %s1 = math.roundeven %s0 : f32
    %s2 = arith.addf %s1, %zero : f32
    %s3 = arith.cmpf olt, %s2, %least : f32
    %s4 = arith.select %s3, %least, %s2 : f32
    %s5 = arith.cmpf ogt, %s4, %largest : f32
    %s6 = arith.select %s5, %largest, %s4 : f32
    %s7 = arith.fptosi %s6 : f32 to i32
    %s8 = arith.trunci %s7 : i32 to i8
    linalg.yield %s8 : i8
  } -> tensor<5x7xi8>
  return %r : tensor<5x7xi8>
}

// Steps as numbers.

// CHECK-LABEL: func.func @dequantize
// CHECK: "kir.dequantize"(%arg0)
// CHECK: operands = [{name = "x0", scale = 5.000000e-01 : f64, signed = false, zero = 121 : i64}]
// CHECK-SAME: results = [{}]
// BACK-LABEL: func.func @dequantize
// BACK-NOT: {{"kir\.|kir.number}}
func.func @dequantize(%x: tensor<5x7xi8>) -> tensor<5x7xf32> {
  %x0 = arith.constant 121.0 : f32
  %xs = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<5x7xi8>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%p: i8, %o: f32):
    %d0 = arith.uitofp %p : i8 to f32
    %d1 = arith.subf %d0, %x0 : f32
    %d2 = arith.mulf %d1, %xs : f32
    linalg.yield %d2 : f32
  } -> tensor<5x7xf32>
  return %r : tensor<5x7xf32>
}

// Steps as those of another scale.

// CHECK-LABEL: func.func @requantize
// CHECK: "kir.requantize"(%arg0)
// CHECK: operands = [{name = "x0", scale = 5.000000e-01 : f64, signed = false, zero = 121 : i64}]
// CHECK-SAME: results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}]
// BACK-LABEL: func.func @requantize
// BACK-NOT: {{"kir\.|kir.number}}
func.func @requantize(%x: tensor<5x7xi8>) -> tensor<5x7xi8> {
  %inverse = arith.constant 4.0 : f32
  %zero = arith.constant 7.0 : f32
  %least = arith.constant -128.0 : f32
  %largest = arith.constant 127.0 : f32
  %x0 = arith.constant 121.0 : f32
  %xs = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<5x7xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<5x7xi8>) outs(%e : tensor<5x7xi8>) {
  ^bb0(%p: i8, %o: i8):
    %d0 = arith.uitofp %p : i8 to f32
    %d1 = arith.subf %d0, %x0 : f32
    %d2 = arith.mulf %d1, %xs : f32
    %s0 = arith.mulf %d2, %inverse : f32
    %s1 = math.roundeven %s0 : f32
    %s2 = arith.addf %s1, %zero : f32
    %s3 = arith.cmpf olt, %s2, %least : f32
    %s4 = arith.select %s3, %least, %s2 : f32
    %s5 = arith.cmpf ogt, %s4, %largest : f32
    %s6 = arith.select %s5, %largest, %s4 : f32
    %s7 = arith.fptosi %s6 : f32 to i32
    %s8 = arith.trunci %s7 : i32 to i8
    linalg.yield %s8 : i8
  } -> tensor<5x7xi8>
  return %r : tensor<5x7xi8>
}

// Two tensors, of scales of their own.

// CHECK-LABEL: func.func @add
// CHECK: "kir.add"(%arg0, %arg1)
// CHECK: operands = [{name = "x0", scale = 5.000000e-01 : f64, signed = false, zero = 121 : i64}, {name = "x1", scale = 2.500000e-01 : f64, signed = false, zero = 3 : i64}]
// CHECK-SAME: results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}]
// BACK-LABEL: func.func @add
// BACK-NOT: {{"kir\.|kir.number}}
func.func @add(%x: tensor<5x7xi8>, %y: tensor<5x7xi8>) -> tensor<5x7xi8> {
  %inverse = arith.constant 4.0 : f32
  %zero = arith.constant 7.0 : f32
  %least = arith.constant -128.0 : f32
  %largest = arith.constant 127.0 : f32
  %x0 = arith.constant 121.0 : f32
  %xs = arith.constant 0.5 : f32
  %y0 = arith.constant 3.0 : f32
  %ys = arith.constant 0.25 : f32
  %e = tensor.empty() : tensor<5x7xi8>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x, %y : tensor<5x7xi8>, tensor<5x7xi8>) outs(%e : tensor<5x7xi8>) {
  ^bb0(%p: i8, %q: i8, %o: i8):
    %d0 = arith.uitofp %p : i8 to f32
    %d1 = arith.subf %d0, %x0 : f32
    %d2 = arith.mulf %d1, %xs : f32
    %f0 = arith.uitofp %q : i8 to f32
    %f1 = arith.subf %f0, %y0 : f32
    %f2 = arith.mulf %f1, %ys : f32
    %j = arith.addf %d2, %f2 : f32
    %s0 = arith.mulf %j, %inverse : f32
    %s1 = math.roundeven %s0 : f32
    %s2 = arith.addf %s1, %zero : f32
    %s3 = arith.cmpf olt, %s2, %least : f32
    %s4 = arith.select %s3, %least, %s2 : f32
    %s5 = arith.cmpf ogt, %s4, %largest : f32
    %s6 = arith.select %s5, %largest, %s4 : f32
    %s7 = arith.fptosi %s6 : f32 to i32
    %s8 = arith.trunci %s7 : i32 to i8
    linalg.yield %s8 : i8
  } -> tensor<5x7xi8>
  return %r : tensor<5x7xi8>
}

// As factors.

// CHECK-LABEL: func.func @mul
// CHECK: "kir.mul"(%arg0, %arg1)
// CHECK: operands = [{name = "x0", scale = 5.000000e-01 : f64, signed = false, zero = 121 : i64}, {name = "x1", scale = 2.500000e-01 : f64, signed = false, zero = 3 : i64}]
// CHECK-SAME: results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}]
// BACK-LABEL: func.func @mul
// BACK-NOT: {{"kir\.|kir.number}}
func.func @mul(%x: tensor<5x7xi8>, %y: tensor<5x7xi8>) -> tensor<5x7xi8> {
  %inverse = arith.constant 4.0 : f32
  %zero = arith.constant 7.0 : f32
  %least = arith.constant -128.0 : f32
  %largest = arith.constant 127.0 : f32
  %x0 = arith.constant 121.0 : f32
  %xs = arith.constant 0.5 : f32
  %y0 = arith.constant 3.0 : f32
  %ys = arith.constant 0.25 : f32
  %e = tensor.empty() : tensor<5x7xi8>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x, %y : tensor<5x7xi8>, tensor<5x7xi8>) outs(%e : tensor<5x7xi8>) {
  ^bb0(%p: i8, %q: i8, %o: i8):
    %d0 = arith.uitofp %p : i8 to f32
    %d1 = arith.subf %d0, %x0 : f32
    %d2 = arith.mulf %d1, %xs : f32
    %f0 = arith.uitofp %q : i8 to f32
    %f1 = arith.subf %f0, %y0 : f32
    %f2 = arith.mulf %f1, %ys : f32
    %j = arith.mulf %d2, %f2 : f32
    %s0 = arith.mulf %j, %inverse : f32
    %s1 = math.roundeven %s0 : f32
    %s2 = arith.addf %s1, %zero : f32
    %s3 = arith.cmpf olt, %s2, %least : f32
    %s4 = arith.select %s3, %least, %s2 : f32
    %s5 = arith.cmpf ogt, %s4, %largest : f32
    %s6 = arith.select %s5, %largest, %s4 : f32
    %s7 = arith.fptosi %s6 : f32 to i32
    %s8 = arith.trunci %s7 : i32 to i8
    linalg.yield %s8 : i8
  } -> tensor<5x7xi8>
  return %r : tensor<5x7xi8>
}

// A function from steps to steps: what becomes of each of them. Below 121 is below 0.

// CHECK-LABEL: func.func @relu
// CHECK: "kir.activation"(%arg0)
// CHECK: operands = [{name = "x0", scale = 5.000000e-01 : f64, signed = false, zero = 121 : i64}]
// CHECK-SAME: results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}]
// CHECK-SAME: table = [7, 7, {{.*}}, 125, 127, 127, 127
// BACK-LABEL: func.func @relu
// BACK-NOT: {{"kir\.|kir.number}}
func.func @relu(%x: tensor<5x7xi8>) -> tensor<5x7xi8> {
  %inverse = arith.constant 4.0 : f32
  %zero = arith.constant 7.0 : f32
  %least = arith.constant -128.0 : f32
  %largest = arith.constant 127.0 : f32
  %x0 = arith.constant 121.0 : f32
  %xs = arith.constant 0.5 : f32
  %nothing = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<5x7xi8>) outs(%e : tensor<5x7xi8>) {
  ^bb0(%p: i8, %o: i8):
    %d0 = arith.uitofp %p : i8 to f32
    %d1 = arith.subf %d0, %x0 : f32
    %d2 = arith.mulf %d1, %xs : f32
    %j = arith.maximumf %d2, %nothing : f32
    %s0 = arith.mulf %j, %inverse : f32
    %s1 = math.roundeven %s0 : f32
    %s2 = arith.addf %s1, %zero : f32
    %s3 = arith.cmpf olt, %s2, %least : f32
    %s4 = arith.select %s3, %least, %s2 : f32
    %s5 = arith.cmpf ogt, %s4, %largest : f32
    %s6 = arith.select %s5, %largest, %s4 : f32
    %s7 = arith.fptosi %s6 : f32 to i32
    %s8 = arith.trunci %s7 : i32 to i8
    linalg.yield %s8 : i8
  } -> tensor<5x7xi8>
  return %r : tensor<5x7xi8>
}

// One behind the other: steps that have one scale, and get another.

// CHECK-LABEL: func.func @concat
// CHECK: [[BOTH:%.+]] = "kir.concat"(%arg0, %arg1)
// CHECK: inputs = {{\[\[}}"i", "k"], ["i", "l"]]
// CHECK-SAME: over = ["j"]
// CHECK: "kir.requantize"([[BOTH]])
// CHECK: results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}]
// BACK-LABEL: func.func @concat
// BACK-NOT: {{"kir\.|kir.number}}
func.func @concat(%x: tensor<5x3xi8>, %y: tensor<5x4xi8>) -> tensor<5x7xi8> {
  %inverse = arith.constant 4.0 : f32
  %zero = arith.constant 7.0 : f32
  %least = arith.constant -128.0 : f32
  %largest = arith.constant 127.0 : f32
  %x0 = arith.constant 121.0 : f32
  %xs = arith.constant 0.5 : f32
  %c = tensor.concat dim(1) %x, %y : (tensor<5x3xi8>, tensor<5x4xi8>) -> tensor<5x7xi8>
  %e = tensor.empty() : tensor<5x7xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%c : tensor<5x7xi8>) outs(%e : tensor<5x7xi8>) {
  ^bb0(%p: i8, %o: i8):
    %d0 = arith.uitofp %p : i8 to f32
    %d1 = arith.subf %d0, %x0 : f32
    %d2 = arith.mulf %d1, %xs : f32
    %s0 = arith.mulf %d2, %inverse : f32
    %s1 = math.roundeven %s0 : f32
    %s2 = arith.addf %s1, %zero : f32
    %s3 = arith.cmpf olt, %s2, %least : f32
    %s4 = arith.select %s3, %least, %s2 : f32
    %s5 = arith.cmpf ogt, %s4, %largest : f32
    %s6 = arith.select %s5, %largest, %s4 : f32
    %s7 = arith.fptosi %s6 : f32 to i32
    %s8 = arith.trunci %s7 : i32 to i8
    linalg.yield %s8 : i8
  } -> tensor<5x7xi8>
  return %r : tensor<5x7xi8>
}

// The largest number of each window, as steps. What it begins with stays where it is, and is read again.

// CHECK-LABEL: func.func @pooling
// CHECK: "kir.pooling"(%arg0)
// CHECK: accumulator = "f32"
// CHECK-SAME: mode = "max"
// CHECK-SAME: results = [{inverse = 4.000000e+00 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 7 : i64}]
// BACK-LABEL: func.func @pooling
// BACK: linalg.pooling_nchw_max
// BACK-NOT: {{"kir\.|kir.number}}
func.func @pooling(%x: tensor<1x1x7x8xf32>) -> tensor<1x1x5x7xi8> {
  %inverse = arith.constant 4.0 : f32
  %zero = arith.constant 7.0 : f32
  %least = arith.constant -128.0 : f32
  %largest = arith.constant 127.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %places = tensor.empty() : tensor<3x2xf32>
  %begin = tensor.empty() : tensor<1x1x5x7xf32>
  %f = linalg.fill ins(%lowest : f32) outs(%begin : tensor<1x1x5x7xf32>) -> tensor<1x1x5x7xf32>
  %m = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
    ins(%x, %places : tensor<1x1x7x8xf32>, tensor<3x2xf32>) outs(%f : tensor<1x1x5x7xf32>) -> tensor<1x1x5x7xf32>
  %e = tensor.empty() : tensor<1x1x5x7xi8>
  %r = linalg.generic {indexing_maps = [#four, #four], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%m : tensor<1x1x5x7xf32>) outs(%e : tensor<1x1x5x7xi8>) {
  ^bb0(%p: f32, %o: i8):
    %s0 = arith.mulf %p, %inverse : f32
    %s1 = math.roundeven %s0 : f32
    %s2 = arith.addf %s1, %zero : f32
    %s3 = arith.cmpf olt, %s2, %least : f32
    %s4 = arith.select %s3, %least, %s2 : f32
    %s5 = arith.cmpf ogt, %s4, %largest : f32
    %s6 = arith.select %s5, %largest, %s4 : f32
    %s7 = arith.fptosi %s6 : f32 to i32
    %s8 = arith.trunci %s7 : i32 to i8
    linalg.yield %s8 : i8
  } -> tensor<1x1x5x7xi8>
  return %r : tensor<1x1x5x7xi8>
}

// Of floats alone, in a program that computes with steps nowhere, nothing is told: what is compiled elsewhere is no operator.

// CHECK-LABEL: func.func @floats
// CHECK-NOT: kir.
// CHECK: return
// BACK-LABEL: func.func @floats
// BACK-NOT: {{"kir\.|kir.number}}
func.func @floats(%x: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %e = tensor.empty() : tensor<5x7xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%p: f32, %o: f32):
    %j = arith.addf %p, %p : f32
    linalg.yield %j : f32
  } -> tensor<5x7xf32>
  return %r : tensor<5x7xf32>
}
