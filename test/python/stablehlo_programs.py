"""StableHLO functions, as text: each name says what it is about. Those of `INTERPRETED` its own interpreter runs."""

from __future__ import annotations


def function(signature: str, body: str) -> str:
    """``main`` with that signature, ``(%x: ...) -> ...``."""
    return f"func.func @main{signature} {{\n{body}\n}}\n"


F = "tensor<3x4xf32>"
INTERPRETED: dict[str, str] = {
    "sums from a number on": function(
        f"(%x: {F}, %s: tensor<f32>) -> tensor<3xf32>",
        f"""%r = stablehlo.reduce(%x init: %s) applies stablehlo.add across dimensions = [1]
            : ({F}, tensor<f32>) -> tensor<3xf32>
        return %r : tensor<3xf32>""",
    ),
    "a reduction by a function of several operations": function(
        f"(%x: {F}, %s: tensor<f32>) -> tensor<4xf32>",
        f"""%r = stablehlo.reduce(%x init: %s) across dimensions = [0] : ({F}, tensor<f32>) -> tensor<4xf32>
            reducer(%a: tensor<f32>, %b: tensor<f32>) {{
              %m = stablehlo.maximum %a, %b : tensor<f32>
              %n = stablehlo.minimum %a, %b : tensor<f32>
              %h = stablehlo.select %c, %m, %n : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
              stablehlo.return %h : tensor<f32>
            }}
        return %r : tensor<4xf32>""",
    ).replace("%r = stablehlo.reduce", "%c = stablehlo.constant dense<true> : tensor<i1>\n%r = stablehlo.reduce", 1),
    "padding with a number that is an argument, and cutting off": function(
        f"(%x: {F}, %v: tensor<f32>) -> tensor<6x5xf32>",
        f"""%r = stablehlo.pad %x, %v, low = [1, -1], high = [0, 2], interior = [1, 0]
            : ({F}, tensor<f32>) -> tensor<6x5xf32>
        return %r : tensor<6x5xf32>""",
    ),
    "a gather of windows, moved inside": function(
        f"(%x: {F}, %i: tensor<2x2xi32>) -> tensor<2x2x3xf32>",
        f"""%r = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2],
            start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 2, 3>}}>
            : ({F}, tensor<2x2xi32>) -> tensor<2x2x3xf32>
        return %r : tensor<2x2x3xf32>""",
    ),
    "a gather of rows in turned order": function(
        f"(%x: {F}, %i: tensor<5xi32>) -> tensor<4x5xf32>",
        f"""%r = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [0],
            collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
            slice_sizes = array<i64: 1, 4>}}> : ({F}, tensor<5xi32>) -> tensor<4x5xf32>
        return %r : tensor<4x5xf32>""",
    ),
    "a scatter that adds, and leaves out what is not there": function(
        f"(%x: {F}, %i: tensor<5x1xi32>, %u: tensor<5x4xf32>) -> {F}",
        f"""%r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
            update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
            index_vector_dim = 1>}}> ({{
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              %s = stablehlo.add %a, %b : tensor<f32>
              stablehlo.return %s : tensor<f32>
            }}) : ({F}, tensor<5x1xi32>, tensor<5x4xf32>) -> {F}
        return %r : {F}""",
    ),
    "a scatter of windows": function(
        f"(%x: {F}, %i: tensor<2x2xi32>, %u: tensor<2x1x1xf32>) -> {F}",
        f"""%r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
            update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}}> ({{
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              %s = stablehlo.maximum %a, %b : tensor<f32>
              stablehlo.return %s : tensor<f32>
            }}) : ({F}, tensor<2x2xi32>, tensor<2x1x1xf32>) -> {F}
        return %r : {F}""",
    ),
    "a window that is no pooling": function(
        f"(%x: {F}, %s: tensor<f32>) -> tensor<2x4xf32>",
        f"""%r = "stablehlo.reduce_window"(%x, %s) <{{window_dimensions = array<i64: 2, 2>,
            window_strides = array<i64: 1, 1>, window_dilations = array<i64: 1, 2>,
            padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>}}> ({{
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              %p = stablehlo.multiply %a, %b : tensor<f32>
              stablehlo.return %p : tensor<f32>
            }}) : ({F}, tensor<f32>) -> tensor<2x4xf32>
        return %r : tensor<2x4xf32>""",
    ),
    "sorting two, large ones first": function(
        f"(%x: {F}, %y: {F}) -> ({F}, {F})",
        f"""%r:2 = "stablehlo.sort"(%x, %y) <{{dimension = 1 : i64, is_stable = true}}> ({{
            ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
              %g = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
              stablehlo.return %g : tensor<i1>
            }}) : ({F}, {F}) -> ({F}, {F})
        return %r#0, %r#1 : {F}, {F}""",
    ),
    "a choice of three": function(
        f"(%i: tensor<i32>, %x: {F}) -> {F}",
        f"""%r = "stablehlo.case"(%i) ({{
              %a = stablehlo.negate %x : {F}
              stablehlo.return %a : {F}
            }}, {{
              %b = stablehlo.exponential %x : {F}
              stablehlo.return %b : {F}
            }}, {{
              stablehlo.return %x : {F}
            }}) : (tensor<i32>) -> {F}
        return %r : {F}""",
    ),
    "a loop that ends by values": function(
        f"(%x: {F}) -> ({F}, tensor<i32>)",
        f"""%n = stablehlo.constant dense<0> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %limit = stablehlo.constant dense<1.0e+02> : tensor<f32>
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %half = stablehlo.constant dense<1.5> : {F}
        %r:2 = stablehlo.while(%v = %x, %k = %n) : {F}, tensor<i32> cond {{
          %t = stablehlo.multiply %v, %v : {F}
          %s = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [0, 1]
              : ({F}, tensor<f32>) -> tensor<f32>
          %g = stablehlo.compare LT, %s, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %g : tensor<i1>
        }} do {{
          %w = stablehlo.multiply %v, %half : {F}
          %l = stablehlo.add %k, %one : tensor<i32>
          stablehlo.return %w, %l : {F}, tensor<i32>
        }}
        return %r#0, %r#1 : {F}, tensor<i32>""",
    ),
    "shifts and bits of unsigned integers": function(
        "(%x: tensor<5xui32>, %y: tensor<5xui32>) -> (tensor<5xui32>, tensor<5xui32>, tensor<5xui32>, tensor<5xui32>)",
        """%a = stablehlo.shift_right_logical %x, %y : tensor<5xui32>
        %b = stablehlo.shift_left %x, %y : tensor<5xui32>
        %c = stablehlo.popcnt %x : tensor<5xui32>
        %d = stablehlo.count_leading_zeros %x : tensor<5xui32>
        return %a, %b, %c, %d : tensor<5xui32>, tensor<5xui32>, tensor<5xui32>, tensor<5xui32>""",
    ),
    "rounding, signs and roots": function(
        f"(%x: {F}) -> ({F}, {F}, {F}, {F})",
        f"""%a = stablehlo.round_nearest_afz %x : {F}
        %b = stablehlo.round_nearest_even %x : {F}
        %c = stablehlo.sign %x : {F}
        %d = stablehlo.cbrt %x : {F}
        return %a, %b, %c, %d : {F}, {F}, {F}, {F}""",
    ),
    "a part at places that are arguments": function(
        f"(%x: {F}, %i: tensor<i32>, %j: tensor<i32>, %u: tensor<2x2xf32>) -> (tensor<2x2xf32>, {F})",
        f"""%a = stablehlo.dynamic_slice %x, %i, %j, sizes = [2, 2]
            : ({F}, tensor<i32>, tensor<i32>) -> tensor<2x2xf32>
        %b = stablehlo.dynamic_update_slice %x, %u, %i, %j
            : ({F}, tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> {F}
        return %a, %b : tensor<2x2xf32>, {F}""",
    ),
}
CALLS = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = func.call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("jit(net)/first/jit(twice)")
  %b = func.call @twice(%a) : (tensor<4xf32>) -> tensor<4xf32> loc("jit(net)/second/jit(twice)")
  return %b : tensor<4xf32>
}
func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.add %x, %x : tensor<4xf32> loc("add"("net.py":7:3))
  return %y : tensor<4xf32>
}
"""
"""A function that is called twice."""
OPEN = """
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
      : (tensor<?x4xf32>, tensor<f32>) -> tensor<?xf32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %shape = stablehlo.concatenate %n1, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %w = stablehlo.dynamic_broadcast_in_dim %s, %shape, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  %r = stablehlo.divide %x, %w : tensor<?x4xf32>
  return %r : tensor<?x4xf32>
}
"""
"""Rows divided by their sums, as many as there are."""
