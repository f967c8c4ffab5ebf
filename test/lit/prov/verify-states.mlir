// RUN: covan-opt %s --split-input-file --verify-diagnostics

// The op waits for its inputs in order, ...

func.func @f(%x: f32) {
  // expected-error@+1 {{'arith.addf' must read the block's first arguments, each once and in order}}
  %op = "prov.perform"() ({
  ^bb0(%a: f32):
    %r = arith.addf %a, %a : f32
    "prov.result"(%r) : (f32) -> ()
  }) {op = "arith.addf", trace = #prov.trace<[]>} : () -> !prov.state
  return
}

// -----

// ... and gives its results in order.

func.func @f() {
  // expected-error@+1 {{must hold 'arith.constant' and then a prov.result for each of its results, in order}}
  %op = "prov.perform"() ({
    %r = arith.constant 1.0 : f32
  }) {op = "arith.constant", trace = #prov.trace<[]>} : () -> !prov.state
  return
}

// -----

// expected-error@+1 {{must hold one block with one op}}
"prov.perform"() ({}) {op = "arith.constant", trace = #prov.trace<[]>} : () -> !prov.state

// -----

// It is called by its name.

func.func @f() {
  // expected-error@+1 {{is the execution of "math.exp" and holds 'arith.constant'}}
  %op = "prov.perform"() ({
    %r = arith.constant 1.0 : f32
    "prov.result"(%r) : (f32) -> ()
  }) {op = "math.exp", trace = #prov.trace<[]>} : () -> !prov.state
  %y = "prov.leave"(%op) {index = 0 : i64} : (!prov.state) -> f32
  return
}

// -----

// Each input is entered once, ...

func.func @f(%x: f32) {
  // expected-error@+1 {{its input 0 must be entered, once, by a prov.enter}}
  %op = "prov.perform"() ({
  ^bb0(%a: f32):
    %r = math.exp %a : f32
    "prov.result"(%r) : (f32) -> ()
  }) {op = "math.exp", trace = #prov.trace<[]>} : () -> !prov.state
  return
}

// -----

// ... and is of the type that the op waits for.

func.func @f(%x: f64) {
  // expected-error@+1 {{its input 0 is a f32, and a f64 is entered}}
  %op = "prov.perform"() ({
  ^bb0(%a: f32):
    %r = math.exp %a : f32
    "prov.result"(%r) : (f32) -> ()
  }) {op = "math.exp", trace = #prov.trace<[]>} : () -> !prov.state
  %s = "prov.enter"(%op, %x) : (!prov.state, f64) -> !prov.state
  %y = "prov.leave"(%s) {index = 0 : i64} : (!prov.state) -> f32
  return
}

// -----

// An action state is left to every result, ...

func.func @f() {
  // expected-error@+1 {{has 1 results, and is left with the results []}}
  %op = "prov.perform"() ({
    %r = arith.constant 1.0 : f32
    "prov.result"(%r) : (f32) -> ()
  }) {op = "arith.constant", trace = #prov.trace<[]>} : () -> !prov.state
  return
}

// -----

// ... of its type, ...

func.func @f() {
  // expected-error@+1 {{its result 0 is a f32, and is left as a f64}}
  %op = "prov.perform"() ({
    %r = arith.constant 1.0 : f32
    "prov.result"(%r) : (f32) -> ()
  }) {op = "arith.constant", trace = #prov.trace<[]>} : () -> !prov.state
  %y = "prov.leave"(%op) {index = 0 : i64} : (!prov.state) -> f64
  return
}

// -----

// ... once.

func.func @f() {
  // expected-error@+1 {{must be left by one prov.leave for each result, and used by nothing else}}
  %op = "prov.perform"() ({
    %r = arith.constant 1.0 : f32
    "prov.result"(%r) : (f32) -> ()
  }) {op = "arith.constant", trace = #prov.trace<[]>} : () -> !prov.state
  %y = "prov.leave"(%op) {index = 0 : i64} : (!prov.state) -> f32
  %z = "prov.leave"(%op) {index = 0 : i64} : (!prov.state) -> f32
  return
}

// -----

// States come from prov.perform.

func.func @f(%s: !prov.state, %x: f32) {
  // expected-error@+1 {{must go on from a prov.perform or a prov.enter}}
  %t = "prov.enter"(%s, %x) : (!prov.state, f32) -> !prov.state
  return
}

// -----

func.func @f(%s: !prov.state) {
  // expected-error@+1 {{must go on from a prov.perform or a prov.enter}}
  %y = "prov.leave"(%s) {index = 0 : i64} : (!prov.state) -> f32
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error@+1 {{must stand in a prov.perform}}
  "prov.result"(%x) : (f32) -> ()
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{trace must hold ids in ascending order}}
  %op = "prov.perform"() ({
    func.call @g() : () -> ()
  }) {op = "func.call", trace = #prov.trace<[4, 3]>} : () -> !prov.state
  return
}
func.func private @g()

// -----

// The trace names rows of the module's table, and nothing else can be read inside than what was entered.

"prov.table"() ({}) : () -> ()
func.func @f() {
  // expected-error@+1 {{performs 3, which the module's prov.table does not have}}
  %op = "prov.perform"() ({
    func.call @g() : () -> ()
  }) {op = "func.call", trace = #prov.trace<[3]>} : () -> !prov.state
  return
}
func.func private @g()

// -----

func.func @f(%x: f32) {
  // expected-note@+1 {{required by region isolation constraints}}
  %op = "prov.perform"() ({
    // expected-error@+1 {{using value defined outside the region}}
    %r = math.exp %x : f32
    "prov.result"(%r) : (f32) -> ()
  }) {op = "math.exp", trace = #prov.trace<[3]>} : () -> !prov.state
  return
}
