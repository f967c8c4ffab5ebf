// RUN: covan-opt %s --verify-diagnostics --split-input-file --allow-unregistered-dialect

// An expectation is about its own line, ...
"prov.table"() : () -> () // expected-error {{expected 1 but got 0}}

// -----

// ... a line so far away, ...
// expected-error@+2 {{expected 1 but got 0}}

"prov.table"() : () -> ()

// -----

"prov.table"() : () -> ()

// expected-error@-2 {{expected 1 but got 0}}

// -----

// ... the next or the last line that is no expectation, ...
// expected-error@below {{expected 1 but got 0}}
// expected-note@below 0 {{this note}}
"prov.table"() : () -> ()

// -----

"prov.table"() : () -> ()
// expected-note@above 0 {{this note}}
// expected-error@above {{expected 1 but got 0}}

// -----

// ... or about no line at all.
// expected-error@unknown {{expected 1 but got 0}}
"prov.table"() : () -> () loc(unknown)

// -----

// A number says how often; + is once or more, * any number of times.
"prov.table"() ({
  // expected-error@+1 2 {{must}}
  "prov.action"() {id = -1, name = "", op = "aten.mm.default", module = "", frames = [], types = []} : () -> ()
  // expected-error@+1 + {{must}}
  "prov.action"() {id = -1, name = "", op = "", module = "", frames = [], types = []} : () -> ()
  // expected-error@+1 2+ {{must}}
  "prov.action"() {id = -1, name = "", op = "", module = "", frames = [], types = []} : () -> ()
  // expected-error@+1 * {{must}}
  "prov.action"() {id = 1, name = "mm", op = "aten.mm.default", module = "", frames = [], types = []} : () -> ()
}) : () -> ()

// -----

// In the -re form, double braces hold regular expressions.
"prov.table"() : () -> () // expected-error-re {{expected {{[0-9]}} but got {{[0-9]$}}}}

// -----

// Notes are diagnostics too.
// expected-note@+1 {{prior use here}}
func.func @f(%x: i32) {
  // expected-error@+1 {{expects different type than prior uses}}
  "test.op"(%x) : (i64) -> ()
}
