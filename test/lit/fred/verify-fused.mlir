// RUN: %segments %s | covan-opt --split-input-file --verify-diagnostics

// A state that is no reduction of the chain.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    // expected-error@below {{has the state q over}}
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["j"], initials = [0.000000e+00 : f32], state_axes = [["i"]], states = ["q"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A state without a start.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    // expected-error@below {{must have axes and a start for each state}}
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["j"], initials = [], state_axes = [["i"]], states = ["l"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A loop over other axes than its sweep.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    // expected-error@below {{runs over ('i',) in a sweep over ('j',)}}
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["i"], initials = [0.000000e+00 : f32], state_axes = [["i"]], states = ["l"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A body that does not give the next state.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    // expected-error@below {{must give l.new}}
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["j"], initials = [0.000000e+00 : f32], state_axes = [["i"]], states = ["l"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A step before the first sweep.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    // expected-error@below {{stands before the first fred.sweep}}
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["j"], initials = [0.000000e+00 : f32], state_axes = [["i"]], states = ["l"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A line of a loop with the name of no step.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      // expected-error@below {{must end in .local}}
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.once"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["j"], initials = [0.000000e+00 : f32], state_axes = [["i"]], states = ["l"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A guard that guards nothing.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      // expected-error@below {{guards l.new by something else}}
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], guard = "so", value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["j"], initials = [0.000000e+00 : f32], state_axes = [["i"]], states = ["l"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A repair of no kind.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      // expected-error@below {{is of the kind 'magic': one of multiplicative, additive}}
      "fred.repair"() ({
        %c = arith.constant 0.0 : f32
        "fred.yield"(%c) : (f32) -> ()
      }) {value = "l", kind = "magic", statistics = [], helpers = []} : () -> ()
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["j"], initials = [0.000000e+00 : f32], state_axes = [["i"]], states = ["l"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A repair of no state.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    // expected-error@below {{repairs q, which is no state}}
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.repair"() ({
        %c = arith.constant 0.0 : f32
        "fred.yield"(%c) : (f32) -> ()
      }) {value = "q", kind = "additive", statistics = [], helpers = []} : () -> ()
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["j"], initials = [0.000000e+00 : f32], state_axes = [["i"]], states = ["l"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A certificate that is none.

func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      // expected-error@below {{has a certificate that is none}}
      "fred.repair"() ({
        %c = arith.constant 0.0 : f32
        "fred.yield"(%c) : (f32) -> ()
      }) {value = "l", kind = "additive", statistics = [], helpers = [], certificate = {claim = "trust me"}} : () -> ()
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["j"], initials = [0.000000e+00 : f32], state_axes = [["i"]], states = ["l"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// A part of a loop outside of one.

func.func @f(%x: tensor<5xf32>) {
  // expected-error@below {{must stand in a fred.rolling}}
  "fred.next"(%x) : (tensor<5xf32>) -> ()
  return
}

// -----

// A sweep outside of a fused form.

func.func @f() {
  // expected-error@below {{must stand in a fred.fused}}
  "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
  return
}
