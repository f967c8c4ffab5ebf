// RUN: covan-opt %s --split-input-file --verify-diagnostics

// The name of another.

func.func @f0(%x: tensor<5x8xi8>, %w: tensor<8x16xi8>) -> tensor<5x16xi32> {
  // expected-error@+1 {{'kir.matmul' op has the region of a kir.linear}}
  %y = "kir.matmul"(%x, %w) ({
  ^bb0(%a: tensor<5x8xi8>, %b: tensor<8x16xi8>):
    %s = "fred.reduce"() ({
      %1 = "fred.read"(%a) : (tensor<5x8xi8>) -> i8
      %2 = arith.extsi %1 : i8 to i32
      %3 = "fred.read"(%b) : (tensor<8x16xi8>) -> i8
      %4 = arith.extsi %3 : i8 to i32
      %5 = arith.muli %2, %4 : i32
      "fred.yield"(%5) : (i32) -> ()
    }) {axes = ["i", "j"], combine = "add", initial = 0 : i32, over = ["k"], value = "s"} : () -> tensor<5x16xi32>
    "fred.output"(%s) : (tensor<5x16xi32>) -> ()
  }, {}) {axes = ["i", "j", "k"], sizes = [5, 16, 8], names = ["a", "b"], inputs = [["i", "k"], ["k", "j"]],
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "i32", scales = [], results = [{}],
    first = {name = "a", signed = true, zero = 0, at = ["i", "k"]}, second = {name = "b", signed = true, zero = 0, at = ["k", "j"]}} : (tensor<5x8xi8>, tensor<8x16xi8>) -> tensor<5x16xi32>
  return %y : tensor<5x16xi32>
}

// -----

// A zero point that its region has not.

func.func @f1(%x: tensor<5x8xi8>, %w: tensor<8x16xi8>) -> tensor<5x16xi32> {
  // expected-error@+1 {{'kir.linear' op says that first is}}
  %y = "kir.linear"(%x, %w) ({
  ^bb0(%a: tensor<5x8xi8>, %b: tensor<8x16xi8>):
    %s = "fred.reduce"() ({
      %1 = "fred.read"(%a) : (tensor<5x8xi8>) -> i8
      %2 = arith.extsi %1 : i8 to i32
      %3 = "fred.read"(%b) : (tensor<8x16xi8>) -> i8
      %4 = arith.extsi %3 : i8 to i32
      %5 = arith.muli %2, %4 : i32
      "fred.yield"(%5) : (i32) -> ()
    }) {axes = ["i", "j"], combine = "add", initial = 0 : i32, over = ["k"], value = "s"} : () -> tensor<5x16xi32>
    "fred.output"(%s) : (tensor<5x16xi32>) -> ()
  }, {}) {axes = ["i", "j", "k"], sizes = [5, 16, 8], names = ["a", "b"], inputs = [["i", "k"], ["k", "j"]],
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "i32", scales = [], results = [{}],
    first = {name = "a", signed = true, zero = 3, at = ["i", "k"]}, second = {name = "b", signed = true, zero = 0, at = ["k", "j"]}} : (tensor<5x8xi8>, tensor<8x16xi8>) -> tensor<5x16xi32>
  return %y : tensor<5x16xi32>
}

// -----

// Nothing of its sums.

func.func @f2(%x: tensor<5x8xi8>, %w: tensor<8x16xi8>) -> tensor<5x16xi32> {
  // expected-error@+1 {{'kir.linear' op says that first is not told}}
  %y = "kir.linear"(%x, %w) ({
  ^bb0(%a: tensor<5x8xi8>, %b: tensor<8x16xi8>):
    %s = "fred.reduce"() ({
      %1 = "fred.read"(%a) : (tensor<5x8xi8>) -> i8
      %2 = arith.extsi %1 : i8 to i32
      %3 = "fred.read"(%b) : (tensor<8x16xi8>) -> i8
      %4 = arith.extsi %3 : i8 to i32
      %5 = arith.muli %2, %4 : i32
      "fred.yield"(%5) : (i32) -> ()
    }) {axes = ["i", "j"], combine = "add", initial = 0 : i32, over = ["k"], value = "s"} : () -> tensor<5x16xi32>
    "fred.output"(%s) : (tensor<5x16xi32>) -> ()
  }, {}) {axes = ["i", "j", "k"], sizes = [5, 16, 8], names = ["a", "b"], inputs = [["i", "k"], ["k", "j"]],
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{}]} : (tensor<5x8xi8>, tensor<8x16xi8>) -> tensor<5x16xi32>
  return %y : tensor<5x16xi32>
}

// -----

// Scales that nothing is multiplied with.

func.func @f3(%x: tensor<5x8xi8>, %w: tensor<8x16xi8>) -> tensor<5x16xi32> {
  // expected-error@+1 {{'kir.linear' op says that scales is}}
  %y = "kir.linear"(%x, %w) ({
  ^bb0(%a: tensor<5x8xi8>, %b: tensor<8x16xi8>):
    %s = "fred.reduce"() ({
      %1 = "fred.read"(%a) : (tensor<5x8xi8>) -> i8
      %2 = arith.extsi %1 : i8 to i32
      %3 = "fred.read"(%b) : (tensor<8x16xi8>) -> i8
      %4 = arith.extsi %3 : i8 to i32
      %5 = arith.muli %2, %4 : i32
      "fred.yield"(%5) : (i32) -> ()
    }) {axes = ["i", "j"], combine = "add", initial = 0 : i32, over = ["k"], value = "s"} : () -> tensor<5x16xi32>
    "fred.output"(%s) : (tensor<5x16xi32>) -> ()
  }, {}) {axes = ["i", "j", "k"], sizes = [5, 16, 8], names = ["a", "b"], inputs = [["i", "k"], ["k", "j"]],
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "i32", scales = [2.0], results = [{}],
    first = {name = "a", signed = true, zero = 0, at = ["i", "k"]}, second = {name = "b", signed = true, zero = 0, at = ["k", "j"]}} : (tensor<5x8xi8>, tensor<8x16xi8>) -> tensor<5x16xi32>
  return %y : tensor<5x16xi32>
}

// -----

// A result in steps, which is none.

func.func @f4(%x: tensor<5x8xi8>, %w: tensor<8x16xi8>) -> tensor<5x16xi32> {
  // expected-error@+1 {{'kir.linear' op says that results is}}
  %y = "kir.linear"(%x, %w) ({
  ^bb0(%a: tensor<5x8xi8>, %b: tensor<8x16xi8>):
    %s = "fred.reduce"() ({
      %1 = "fred.read"(%a) : (tensor<5x8xi8>) -> i8
      %2 = arith.extsi %1 : i8 to i32
      %3 = "fred.read"(%b) : (tensor<8x16xi8>) -> i8
      %4 = arith.extsi %3 : i8 to i32
      %5 = arith.muli %2, %4 : i32
      "fred.yield"(%5) : (i32) -> ()
    }) {axes = ["i", "j"], combine = "add", initial = 0 : i32, over = ["k"], value = "s"} : () -> tensor<5x16xi32>
    "fred.output"(%s) : (tensor<5x16xi32>) -> ()
  }, {}) {axes = ["i", "j", "k"], sizes = [5, 16, 8], names = ["a", "b"], inputs = [["i", "k"], ["k", "j"]],
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "i32", scales = [], results = [{inverse = 2.0, zero = 0, least = 0, largest = 255, rounding = "half_even"}],
    first = {name = "a", signed = true, zero = 0, at = ["i", "k"]}, second = {name = "b", signed = true, zero = 0, at = ["k", "j"]}} : (tensor<5x8xi8>, tensor<8x16xi8>) -> tensor<5x16xi32>
  return %y : tensor<5x16xi32>
}

// -----

// Ops that give something else.

func.func @f6(%x: tensor<5xi8>) -> tensor<5xf32> {
  // expected-error@+1 {{'kir.dequantize' op holds ops that do not read its operands, or do not give its results}}
  %y = "kir.dequantize"(%x) ({
  ^bb0(%a: tensor<5xi8>):
    %v = "fred.map"() ({
      %0 = "fred.read"(%a) : (tensor<5xi8>) -> i8
      %1 = arith.sitofp %0 : i8 to f32
      %scale = arith.constant 5.0e-1 : f32
      %2 = arith.mulf %1, %scale : f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], value = "v"} : () -> tensor<5xf32>
    "fred.output"(%v) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%a: tensor<5xi8>):
    "fred.output"(%a) : (tensor<5xi8>) -> ()
  }) {axes = ["i"], sizes = [5], names = ["a"], inputs = [["i"]],
    operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, results = [{}],
    operands = [{name = "a", signed = true, zero = 0, scale = 0.5}]} : (tensor<5xi8>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}

// -----

// No chain.

func.func @f5(%x: tensor<5x8xi8>, %w: tensor<8x16xi8>) -> tensor<5x16xi32> {
  // expected-error@+1 {{names 3 axes and says 2 sizes}}
  %y = "kir.linear"(%x, %w) ({
  ^bb0(%a: tensor<5x8xi8>, %b: tensor<8x16xi8>):
    %s = "fred.reduce"() ({
      %1 = "fred.read"(%a) : (tensor<5x8xi8>) -> i8
      %2 = arith.extsi %1 : i8 to i32
      %3 = "fred.read"(%b) : (tensor<8x16xi8>) -> i8
      %4 = arith.extsi %3 : i8 to i32
      %5 = arith.muli %2, %4 : i32
      "fred.yield"(%5) : (i32) -> ()
    }) {axes = ["i", "j"], combine = "add", initial = 0 : i32, over = ["k"], value = "s"} : () -> tensor<5x16xi32>
    "fred.output"(%s) : (tensor<5x16xi32>) -> ()
  }, {}) {axes = ["i", "j", "k"], sizes = [5, 16], names = ["a", "b"], inputs = [["i", "k"], ["k", "j"]],
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "i32", scales = [], results = [{}],
    first = {name = "a", signed = true, zero = 0, at = ["i", "k"]}, second = {name = "b", signed = true, zero = 0, at = ["k", "j"]}} : (tensor<5x8xi8>, tensor<8x16xi8>) -> tensor<5x16xi32>
  return %y : tensor<5x16xi32>
}
