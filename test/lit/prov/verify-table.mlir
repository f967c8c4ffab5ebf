// RUN: covan-opt --split-input-file --verify-diagnostics --allow-unregistered-dialect %s

// A module carries one ledger.

"prov.table"() ({
}) : () -> ()
// expected-error@+1 {{'prov.table' op is the second of its module, which carries one ledger only}}
"prov.table"() ({
}) : () -> ()

// -----

// A nested module may carry its own: then its traces are looked up there.

"prov.table"() ({
}) : () -> ()
module {
  "prov.table"() ({
    "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
  }) : () -> ()
  "test.op"() : () -> () loc("prov:1:relu")
}

// -----

func.func @f() {
  // expected-error@+1 {{'prov.table' op must stand directly in a module}}
  "prov.table"() ({
  }) : () -> ()
  return
}

// -----

"prov.table"() ({
  // expected-error@+1 {{'test.op' op cannot stand in a prov.table, which holds prov.action and prov.part only}}
  "test.op"() : () -> ()
}) : () -> ()

// -----

"prov.table"() ({
}) : () -> ()
// expected-error@+1 {{'prov.action' op must stand in a prov.table}}
"prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
