// RUN: covan-opt %s -p 'torch-superoptimise{target=cpu seconds=20}' --mlir-print-debuginfo | FileCheck %s

// Two products of one operand are one of both factors side by side. What is read of it element by element is read
// where it lies; the table's parts are those of the new program, and belong to both actions.

// CHECK: covan.substituted = "{{.*}}matmul-2
// CHECK-DAG: "prov.part"() {action = 0 : i64, also = [1], {{.*}}name = "cat_s1"
// CHECK-DAG: "prov.part"() {action = 0 : i64, also = [1], {{.*}}name = "mm_s1"
// CHECK-DAG: "prov.part"() {action = 1 : i64, {{.*}}name = "slice_s2"

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.*]]: !torch.vtensor<[4,32],f32>
// CHECK: %[[BOTH:.*]] = torch.aten.cat
// CHECK-SAME: -> !torch.vtensor<[32,48],f32>
// CHECK: %[[ALL:.*]] = torch.aten.mm %[[X]], %[[BOTH]]
// CHECK-NOT: torch.aten.mm
// CHECK: %[[FIRST:.*]] = torch.aten.slice.Tensor %[[ALL]]
// CHECK: torch.aten.sigmoid %[[FIRST]]
// CHECK: %[[SECOND:.*]] = torch.aten.slice.Tensor %[[ALL]]
// CHECK: torch.aten.mul.Tensor {{.*}}, %[[SECOND]]
"prov.table"() ({
  "prov.action"() {id = 0 : i64, name = "gate", op = "aten.mm.default", module = "", frames = [], types = ["f32[4, 24]"]} : () -> ()
  "prov.action"() {id = 1 : i64, name = "up", op = "aten.mm.default", module = "", frames = [], types = ["f32[4, 24]"]} : () -> ()
  "prov.action"() {id = 2 : i64, name = "mul", op = "aten.mul.Tensor", module = "", frames = [], types = ["f32[4, 24]"]} : () -> ()
  "prov.part"() {id = 3 : i64, action = 0 : i64, name = "mm", op = "aten.mm.default", inputs = [], types = ["f32[4, 24]"], args = "[[{\22a\22:0,\22of\22:\22f32[4, 32]\22},{\22w\22:\22v\22,\22of\22:\22f32[32, 24]\22}],[]]"} : () -> ()
  "prov.part"() {id = 4 : i64, action = 1 : i64, name = "mm_1", op = "aten.mm.default", inputs = [], types = ["f32[4, 24]"], args = "[[{\22a\22:0,\22of\22:\22f32[4, 32]\22},{\22w\22:\22w\22,\22of\22:\22f32[32, 24]\22}],[]]"} : () -> ()
  "prov.part"() {id = 5 : i64, action = 2 : i64, name = "sigmoid", op = "aten.sigmoid.default", inputs = [3], types = ["f32[4, 24]"], args = "[[{\22p\22:3}],[]]"} : () -> ()
  "prov.part"() {id = 6 : i64, action = 2 : i64, name = "mul", op = "aten.mul.Tensor", inputs = [4, 5], types = ["f32[4, 24]"], args = "[[{\22p\22:5},{\22p\22:4}],[]]"} : () -> ()
}) : () -> ()
func.func @main(%x: !torch.vtensor<[4,32],f32>, %v: !torch.vtensor<[32,24],f32> {covan.weight = "v"}, %w: !torch.vtensor<[32,24],f32> {covan.weight = "w"}) -> !torch.vtensor<[4,24],f32> {
  %0 = torch.aten.mm %x, %v : !torch.vtensor<[4,32],f32>, !torch.vtensor<[32,24],f32> -> !torch.vtensor<[4,24],f32> loc("prov:3:mm")
  %1 = torch.aten.mm %x, %w : !torch.vtensor<[4,32],f32>, !torch.vtensor<[32,24],f32> -> !torch.vtensor<[4,24],f32> loc("prov:4:mm_1")
  %2 = torch.aten.sigmoid %0 : !torch.vtensor<[4,24],f32> -> !torch.vtensor<[4,24],f32> loc("prov:5:sigmoid")
  %3 = torch.aten.mul.Tensor %2, %1 : !torch.vtensor<[4,24],f32>, !torch.vtensor<[4,24],f32> -> !torch.vtensor<[4,24],f32> loc("prov:6:mul")
  return %3 : !torch.vtensor<[4,24],f32> loc("prov:6:mul")
}
