// RUN: covan-opt %s -p prov-reflect | FileCheck %s

// x → (op, x) → y: the op waits in prov.perform, is entered from x, and left to y.

// CHECK-LABEL: func.func @unary(
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>)
// CHECK-NEXT: %[[OP:.*]] = "prov.perform"() ({
// CHECK-NEXT: ^bb0(%[[IN:.*]]: tensor<4xf32>):
// CHECK-NEXT:   %[[R:.*]] = math.exp %[[IN]] : tensor<4xf32>
// CHECK-NEXT:   "prov.result"(%[[R]]) : (tensor<4xf32>) -> ()
// CHECK-NEXT: }) {op = "math.exp", trace = #prov.trace<[3]>} : () -> !prov.state
// CHECK-NEXT: %[[S:.*]] = "prov.enter"(%[[OP]], %[[X]]) : (!prov.state, tensor<4xf32>) -> !prov.state
// CHECK-NEXT: %[[Y:.*]] = "prov.leave"(%[[S]]) {index = 0 : i64} : (!prov.state) -> tensor<4xf32>
// CHECK-NEXT: return %[[Y]]
func.func @unary(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = math.exp %x : tensor<4xf32> loc("prov:3:exp")
  return %y : tensor<4xf32>
}

// All inputs are entered, in order, and all results left; none of either is fine.

// CHECK-LABEL: func.func @several(
// CHECK-SAME: %[[X:.*]]: i32, %[[Y:.*]]: i32)
// CHECK: %[[OP:.*]] = "prov.perform"()
// CHECK: arith.addui_extended
// CHECK: {op = "arith.addui_extended", trace = #prov.trace<[4, 5]>}
// CHECK: %[[A:.*]] = "prov.enter"(%[[OP]], %[[X]])
// CHECK: %[[B:.*]] = "prov.enter"(%[[A]], %[[Y]])
// CHECK: %[[SUM:.*]] = "prov.leave"(%[[B]]) {index = 0 : i64} : (!prov.state) -> i32
// CHECK: %[[CARRY:.*]] = "prov.leave"(%[[B]]) {index = 1 : i64} : (!prov.state) -> i1
// CHECK: "prov.perform"() ({
// CHECK-NEXT: func.call @nothing() : () -> ()
// CHECK-NEXT: }) {op = "func.call", trace = #prov.trace<[6]>} : () -> !prov.state
// CHECK-NEXT: return %[[SUM]], %[[CARRY]]
func.func @several(%x: i32, %y: i32) -> (i32, i1) {
  %sum, %carry = arith.addui_extended %x, %y : i32, i1 loc(fused<#prov.trace<[4, 5]>>["prov:4:a", "prov:5:b"])
  func.call @nothing() : () -> () loc("prov:6:call")
  return %sum, %carry : i32, i1
}
func.func private @nothing()

// An op with regions is one action with all that is in them; what they read from outside is entered last.

// CHECK-LABEL: func.func @regions(
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>, %[[K:.*]]: f32)
// CHECK: %[[OP:.*]] = "prov.perform"
// CHECK-NEXT: ^bb0(%[[IN:.*]]: tensor<4xf32>, %[[OUT:.*]]: tensor<4xf32>, %[[READ:.*]]: f32):
// CHECK: linalg.map ins(%[[IN]] : tensor<4xf32>) outs(%[[OUT]] : tensor<4xf32>)
// CHECK: arith.mulf %{{.*}}, %[[READ]]
// CHECK: {op = "linalg.map", trace = #prov.trace<[3, 4]>}
// CHECK: %[[A:.*]] = "prov.enter"(%[[OP]], %[[X]])
// CHECK: %[[B:.*]] = "prov.enter"(%[[A]], %[[X]])
// CHECK: "prov.enter"(%[[B]], %[[K]]) : (!prov.state, f32)
func.func @regions(%x: tensor<4xf32>, %k: f32) -> tensor<4xf32> {
  %y = linalg.map ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) (%i: f32, %o: f32) {
    %m = arith.mulf %i, %k : f32 loc("prov:3:mul")
    linalg.yield %m : f32
  } loc("prov:4:map")
  return %y : tensor<4xf32>
}
