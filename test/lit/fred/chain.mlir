// RUN: %segments %s | covan-opt | covan-opt | FileCheck %s
// RUN: %segments %s | covan-opt --emit-bytecode | covan-opt | FileCheck %s
// RUN: %segments %s | covan-opt -p canonicalize -p cse | FileCheck %s

// A chain prints, parses and goes through bytecode; canonicalization, which moves constants, leaves it a chain.

// CHECK-LABEL: func.func @max(
// CHECK: "fred.chain"(%{{.*}}) ({
// CHECK: "fred.reduce"() ({
// CHECK: }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "m"} : () -> tensor<5xf32>
// CHECK: "fred.output"
// CHECK: sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
func.func @max(%x: tensor<5x7xf32>) -> tensor<5xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<5x7xf32>):
    %m = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "m", axes = ["i"], over = ["j"], combine = "max", initial = 0xFF800000 : f32} : () -> tensor<5xf32>
    "fred.output"(%m) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}

// CHECK-LABEL: func.func @dynamic(
// CHECK: sizes = [-1, 7]} : (tensor<?x7xf32>) -> tensor<?xf32>
func.func @dynamic(%x: tensor<?x7xf32>) -> tensor<?xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<?x7xf32>):
    %m = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<?x7xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "m", axes = ["i"], over = ["j"], combine = "max", initial = 0xFF800000 : f32} : () -> tensor<?xf32>
    "fred.output"(%m) : (tensor<?xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [-1, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<?x7xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// CHECK-LABEL: func.func @positions(
// CHECK: "fred.index"() {axis = "j"} : () -> index
// CHECK: "fred.extent"() {axis = "i"} : () -> index
func.func @positions(%x: tensor<5x7xf32>) -> tensor<5xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<5x7xf32>):
    %m = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      %i = "fred.index"() {axis = "j"} : () -> index
      %n = "fred.extent"() {axis = "i"} : () -> index
      %c = arith.cmpi slt, %i, %n : index
      %z = arith.constant 0.0 : f32
      %s = arith.select %c, %e, %z : f32
      "fred.yield"(%s) : (f32) -> ()
    }) {value = "m", axes = ["i"], over = ["j"], combine = "add", initial = 0.0 : f32} : () -> tensor<5xf32>
    "fred.output"(%m) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}
