// RUN: covan-opt --split-input-file --verify-diagnostics %s

// Actions and parts share one space of ids.

"prov.table"() ({
  "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
  // expected-error@+1 {{'prov.part' op has the id 1 of 'relu': actions and parts share one space of ids}}
  "prov.part"() {id = 1, action = 1, name = "relu", op = "aten.relu.default", inputs = [], types = []} : () -> ()
}) : () -> ()

// -----

// A part belongs to an action, not to another part.

"prov.table"() ({
  "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
  "prov.part"() {id = 2, action = 1, name = "relu", op = "aten.relu.default", inputs = [], types = []} : () -> ()
  // expected-error@+1 {{'prov.part' op belongs to action 2, which the table does not have}}
  "prov.part"() {id = 3, action = 2, name = "relu", op = "aten.relu.default", inputs = [], types = []} : () -> ()
}) : () -> ()

// -----

// Parts read parts; the order of the rows does not matter.

"prov.table"() ({
  "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
  "prov.part"() {id = 2, action = 1, name = "a", op = "aten.relu.default", inputs = [3], types = []} : () -> ()
  // expected-error@+1 {{'prov.part' op reads part 1, which the table does not have}}
  "prov.part"() {id = 3, action = 1, name = "b", op = "aten.relu.default", inputs = [1], types = []} : () -> ()
}) : () -> ()

// -----

"prov.table"() ({
  // expected-error@+1 {{'prov.action' op op must name an operator such as "aten.mm.default"}}
  "prov.action"() {id = 1, name = "relu", op = "", module = "", frames = [], types = []} : () -> ()
}) : () -> ()

// -----

"prov.table"() ({
  // expected-error@+1 {{'prov.action' op name must not be empty}}
  "prov.action"() {id = 1, name = "", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
}) : () -> ()

// -----

"prov.table"() ({
  // expected-error@+1 {{'prov.action' op id must be a non-negative i64, got 1 : i32}}
  "prov.action"() {id = 1 : i32, name = "relu", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
  // expected-error@+1 {{'prov.action' op id must be a non-negative i64, got -1 : i64}}
  "prov.action"() {id = -1, name = "relu", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
}) : () -> ()

// -----

"prov.table"() ({
  "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
  // expected-error@+1 {{'prov.part' op inputs must be an array of non-negative i64 ids, got ["relu"]}}
  "prov.part"() {id = 2, action = 1, name = "relu", op = "aten.relu.default", inputs = ["relu"], types = []} : () -> ()
}) : () -> ()

// -----

"prov.table"() ({
  // expected-error@+1 {{'prov.action' op types must be an array of strings such as "f32[2,3]", got [f32]}}
  "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = [], types = [f32]} : () -> ()
}) : () -> ()

// -----

"prov.table"() ({
  // expected-error@+1 {{'prov.action' op a frame must be {file: string, function: string, internal: bool, line: i64}, got {file = "model.py"}}}
  "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = [{file = "model.py"}], types = []} : () -> ()
}) : () -> ()

// -----

// Every attribute is required.

"prov.table"() ({
  // expected-error@+1 {{attribute "types" is expected but not provided}}
  "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = []} : () -> ()
}) : () -> ()
