// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update,fred-split-k,fred-certify)' 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=TEXT --input-file=%t
// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update,canonicalize,cse,fred-certify{report=false})' 2>&1 | covan-opt | FileCheck %s

// Each repair gets its proof, which can be read again.

// CHECK: "fred.repair"
// CHECK: }) {certificate = {claim = "repair of l = add[j] (exp(x - m))", proofs = [
// CHECK-SAME: {axioms = ["exp(a + b) = exp(a) * exp(b)"], counterexample = "", given = [], obligation = "exp(x - m.new) = exp(m.old - m.new) * exp(x - m.old)", provers = ["z3", "sympy"], result = "proved", seconds = {{[0-9.eE+-]+}} : f64, title = "one element"}
// CHECK-SAME: title = "two parts"
// CHECK-SAME: title = "the update"
// CHECK-SAME: title = "nothing changes"

// TEXT: repair of l = add[j] (exp(x - m)): proved
// TEXT-NEXT: one element
// TEXT-NEXT: exp(x - m.new) = exp(m.old - m.new) * exp(x - m.old)
// TEXT-NEXT: axiom exp(a + b) = exp(a) * exp(b)
// TEXT-NEXT: proved by z3, sympy
func.func @f(%x: tensor<5x7xf32>) -> tensor<5xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<5x7xf32>):
    %m = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "m", axes = ["i"], over = ["j"], combine = "max", initial = 0xFF800000 : f32} : () -> tensor<5xf32>
    %l = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      %n = "fred.read"(%m) : (tensor<5xf32>) -> f32
      %s = arith.subf %e, %n : f32
      %p = math.exp %s : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "l", axes = ["i"], over = ["j"], combine = "add", initial = 0.0 : f32} : () -> tensor<5xf32>
    "fred.output"(%l) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}
