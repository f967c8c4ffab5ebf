// RUN: covan-opt --split-input-file --verify-diagnostics --allow-unregistered-dialect %s

// Where the module has a table, every trace names rows of it. The diagnostic stands where the op's location says, which
// for these ops is nowhere.

"prov.table"() ({
}) : () -> ()
// expected-error@unknown {{'test.op' op has a trace that names 3, 4, which the module's prov.table does not have}}
"test.op"() : () -> () loc(fused<#prov.trace<[4, 3]>>["a", "b"])

// -----

// The form that travels to other contexts is checked likewise, at any depth.

"prov.table"() ({
}) : () -> ()
func.func @f() {
  // expected-error@unknown {{'test.op' op has a trace that names 3, which the module's prov.table does not have}}
  "test.op"() : () -> () loc(callsite("prov:3:mm" at "caller"))
  return
}

// -----

"prov.table"() ({
}) : () -> ()
// expected-error@unknown {{'test.op' op has a malformed trace in its location: #prov.trace<["a"]> holds something that is not an integer}}
"test.op"() : () -> () loc(fused<#prov.trace<["a"]>>["a"])

// -----

// IRDL checks the attribute itself.

// expected-error@+1 {{expected base attribute 'builtin.array' but got 'builtin.integer'}}
"test.op"() : () -> () loc(fused<#prov.trace<3>>["a"])
