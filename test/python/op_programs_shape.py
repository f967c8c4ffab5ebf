"""Small programs, one operation or idiom each, in groups: convolutions, pooling, indexing, layouts, types, layers.

A program is a function and its arguments. A group is compiled as one.
Names follow the operation; the variant stands behind it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from op_inputs import Group, b, module, n, r, u
from torch import Tensor, nn

GROUPS: dict[str, Group] = {}

_IN_CHUNKS = nn.LinearCrossEntropyOptions(batch_chunk_size=2)

GROUPS["convolutions"] = {
    "conv1d": (lambda x, w: F.conv1d(x, w, stride=2, padding=1), (r(2, 3, 9), r(4, 3, 3))),
    "conv_integers_in_groups": (
        lambda x, w: (
            F.conv3d(x, w, padding=1, groups=2),
            F.conv_transpose3d(x, w, stride=2, padding=1, groups=2),
            F.conv_transpose2d(x[:, :, 0], w[:, :, 0], groups=2),
        ),
        (n(2, 4, 3, 5, 4, low=-5, high=5), n(4, 2, 2, 3, 2, low=-5, high=5)),
    ),
    "conv1d_same": (lambda x, w: F.conv1d(x, w, padding="same", dilation=2), (r(2, 3, 9), r(4, 3, 3))),
    "conv2d": (F.conv2d, (r(2, 3, 8, 9), r(4, 3, 3, 3), r(4))),
    "conv2d_stride_padding": (
        lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 2)),
        (r(1, 3, 8, 9), r(4, 3, 3, 3)),
    ),
    "conv2d_dilated": (lambda x, w: F.conv2d(x, w, padding=2, dilation=2), (r(1, 3, 8, 9), r(4, 3, 3, 3))),
    "conv2d_grouped": (lambda x, w, c: F.conv2d(x, w, c, groups=2), (r(1, 4, 8, 9), r(6, 2, 3, 3), r(6))),
    "conv2d_depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=4), (r(1, 4, 8, 9), r(4, 1, 3, 3))),
    "conv2d_depthwise_x2": (lambda x, w: F.conv2d(x, w, groups=4, stride=2), (r(1, 4, 8, 9), r(8, 1, 3, 3))),
    "conv2d_bf16": (F.conv2d, (r(1, 3, 8, 9).bfloat16(), r(4, 3, 3, 3).bfloat16(), r(4).bfloat16())),
    "conv2d_bf16_batch": (F.conv2d, (r(2, 3, 8, 9).bfloat16(), r(4, 3, 3, 3).bfloat16(), r(4).bfloat16())),
    "conv2d_f16_batch": (nn.Conv2d(3, 4, 3, padding=1).half(), (r(2, 3, 8, 9).half(),)),
    "conv2d_bf16_weights": (nn.Conv2d(3, 4, 3).bfloat16(), (r(1, 3, 8, 9).bfloat16(),)),
    "conv2d_unbatched": (F.conv2d, (r(3, 8, 9), r(4, 3, 3, 3))),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), (r(1, 2, 4, 5, 6), r(3, 2, 3, 3, 3))),
    "conv3d_grouped": (
        lambda x, w, c: F.conv3d(x, w, c, stride=(2, 1, 2), padding=(1, 0, 2), dilation=(1, 2, 1), groups=2),
        (r(2, 4, 5, 7, 6), r(6, 2, 3, 2, 1), r(6)),
    ),
    "conv3d_depthwise": (lambda x, w: F.conv3d(x, w, padding=1, groups=3), (r(1, 3, 4, 5, 6), r(3, 1, 3, 3, 3))),
    "conv3d_depthwise_bf16": (
        lambda x, w: F.conv3d(x, w, groups=3),
        (r(1, 3, 4, 5, 6).bfloat16(), r(3, 1, 2, 2, 2).bfloat16()),
    ),
    "conv_transpose1d": (
        lambda x, w: F.conv_transpose1d(x, w, stride=2, output_padding=1),
        (r(2, 3, 5), r(3, 4, 3)),
    ),
    "conv_transpose2d": (
        lambda x, w, c: F.conv_transpose2d(x, w, c, stride=2, padding=1),
        (r(2, 3, 5, 4), r(3, 4, 3, 3), r(4)),
    ),
    "conv_transpose2d_grouped": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2),
        (r(1, 4, 5, 4), r(4, 3, 3, 3)),
    ),
    "conv_transpose2d_dilated": (lambda x, w: F.conv_transpose2d(x, w, dilation=2), (r(1, 3, 5, 4), r(3, 2, 3, 3))),
    "conv_transpose3d": (lambda x, w: F.conv_transpose3d(x, w, stride=2), (r(1, 2, 3, 3, 3), r(2, 2, 2, 2, 2))),
    "conv_padding_mode": (module(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")), (r(1, 2, 5, 6),)),
    "unfold_im2col": (lambda x: F.unfold(x, 3, padding=1, stride=2), (r(1, 2, 6, 7),)),
    "fold_col2im": (lambda x: F.fold(x, (4, 5), 2), (r(1, 12, 12),)),
}

GROUPS["pooling"] = {
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2), (r(2, 3, 9),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (r(2, 3, 9, 8),)),
    "max_pool2d_ceil": (lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), (r(2, 3, 9, 7),)),
    "max_pool2d_dilated": (lambda x: F.max_pool2d(x, 2, 1, dilation=2), (r(1, 3, 9, 8),)),
    "max_pool2d_indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), (r(1, 3, 8, 8),)),
    "max_pool2d_unbatched": (lambda x: F.max_pool2d(x, 2), (r(3, 8, 8),)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (r(1, 2, 4, 6, 4),)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (r(2, 3, 9),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), (r(2, 3, 9, 8),)),
    "avg_pool2d_excluding_pad": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (r(1, 3, 9, 8),)),
    "avg_pool2d_ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (r(1, 3, 8, 8),)),
    "avg_pool1d_longer": (lambda x: F.avg_pool1d(x, 64, ceil_mode=True), (r(2, 3, 7),)),
    "avg_pool2d_longer": (lambda x: F.avg_pool2d(x, (9, 2), (5, 2), ceil_mode=True), (r(1, 3, 7, 5),)),
    "avg_pool2d_longest": (lambda x: F.avg_pool2d(x, 1280, ceil_mode=True), (r(1, 3, 7, 5),)),
    "avg_pool2d_longer_divisor": (lambda x: F.avg_pool2d(x, 9, ceil_mode=True, divisor_override=7), (r(1, 3, 7, 5),)),
    "avg_pool2d_divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (r(1, 3, 8, 8),)),
    "max_pool_integers": (
        lambda x: (
            *F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
            *F.max_pool3d(x.unsqueeze(0), 2, padding=1, return_indices=True),
            F.max_pool2d(x, (2, 3), dilation=2),
        ),
        (n(2, 3, 8, 7, low=-4, high=4),),
    ),
    "avg_pool2d_one_padding": (
        lambda x: torch.ops.aten.avg_pool2d(x, [2, 2], [], [0], False, True, -2),
        (r(1, 1, 4, 4),),
    ),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (r(1, 2, 4, 6, 4),)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 4), (r(2, 3, 9),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (r(1, 2, 8, 7),)),
    "adaptive_avg_pool2d_1": (lambda x: F.adaptive_avg_pool2d(x, 1), (r(1, 2, 8, 7),)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 2), (r(1, 2, 4, 6, 5),)),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 3), (r(2, 3, 9),)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), (r(1, 2, 8, 9),)),
    "adaptive_max_pool2d_uneven": (lambda x: F.adaptive_max_pool2d(x, (3, 5)), (r(1, 2, 8, 7),)),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2.0, 2), (r(1, 2, 6, 6),)),
    "max_unpool2d": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), kernel_size=2),
        (r(1, 2, 4, 6),),
    ),
}

GROUPS["padding_resizing"] = {
    "pad_constant": (lambda x: F.pad(x, (1, 2, 0, 3), value=1.5), (r(2, 3, 4),)),
    "pad_negative": (lambda x: F.pad(x, (-1, 2)), (r(3, 4),)),
    "pad_negative_both": (lambda x: F.pad(x, (-1, 2, 1, -2), value=2.0), (r(1, 4, 5),)),
    "pad_replicate_negative": (lambda x: F.pad(x, (-1, 2), mode="replicate"), (r(1, 2, 5),)),
    "pad_int": (lambda x: F.pad(x, (1, 1), value=7), (n(3, 4),)),
    "pad_bool": (lambda x: F.pad(x, (1, 1), value=True), (b(3, 4),)),
    "pad_reflect1d": (lambda x: F.pad(x, (2, 1), mode="reflect"), (r(2, 3, 5),)),
    "pad_reflect2d": (lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), (r(1, 2, 5, 4),)),
    "pad_reflect3d": (lambda x: F.pad(x, (1, 1, 1, 0, 0, 1), mode="reflect"), (r(1, 2, 3, 4, 4),)),
    "pad_replicate1d": (lambda x: F.pad(x, (2, 1), mode="replicate"), (r(2, 3, 5),)),
    "pad_replicate2d": (lambda x: F.pad(x, (2, 1, 1, 2), mode="replicate"), (r(1, 2, 5, 4),)),
    "pad_replicate3d": (lambda x: F.pad(x, (1, 1, 1, 0, 0, 1), mode="replicate"), (r(1, 2, 3, 4, 4),)),
    "pad_circular": (lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"), (r(1, 2, 5, 4),)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0), (r(1, 2, 3, 4),)),
    "nearest_size": (lambda x: F.interpolate(x, size=(5, 7)), (r(1, 2, 3, 4),)),
    "nearest_exact": (lambda x: F.interpolate(x, size=(5, 7), mode="nearest-exact"), (r(1, 2, 3, 4),)),
    "nearest1d": (lambda x: F.interpolate(x, size=7), (r(1, 2, 4),)),
    "nearest3d": (lambda x: F.interpolate(x, scale_factor=2.0), (r(1, 2, 2, 3, 2),)),
    "linear1d": (lambda x: F.interpolate(x, size=7, mode="linear"), (r(1, 2, 4),)),
    "bilinear": (lambda x: F.interpolate(x, size=(5, 7), mode="bilinear"), (r(1, 2, 3, 4),)),
    "bilinear_corners": (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True),
        (r(1, 2, 3, 4),),
    ),
    "bilinear_down": (lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), (r(1, 2, 6, 8),)),
    "bicubic": (lambda x: F.interpolate(x, size=(5, 7), mode="bicubic"), (r(1, 2, 3, 4),)),
    "trilinear": (lambda x: F.interpolate(x, size=(3, 5, 4), mode="trilinear"), (r(1, 2, 2, 3, 2),)),
    "area": (lambda x: F.interpolate(x, size=(2, 3), mode="area"), (r(1, 2, 6, 7),)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (r(1, 8, 3, 4),)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (r(1, 2, 4, 6),)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (r(1, 4, 2, 3),)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), (r(1, 2, 4, 5), r(1, 3, 3, 2))),
    "grid_sample_border": (
        lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True),
        (r(1, 2, 4, 5), r(1, 3, 3, 2)),
    ),
    "grid_sample_nearest": (
        lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False),
        (r(1, 2, 4, 5), r(1, 3, 3, 2)),
    ),
    "affine_grid": (lambda t: F.affine_grid(t, [1, 1, 3, 4], align_corners=False), (r(1, 2, 3),)),
}

GROUPS["indexing"] = {
    "gather": (lambda x, i: x.gather(1, i), (r(3, 5), n(3, 4, low=0, high=5))),
    "gather_of_a_number": (lambda x, i: (x.gather(0, i), x.gather(0, i[0])), (r(), n(3, low=0, high=1))),
    "take_along_dim": (lambda x: torch.take_along_dim(x, x.argsort(1), 1), (r(3, 5),)),
    "take": (lambda x, i: torch.take(x, i), (r(3, 5), n(4, low=-15, high=15))),
    "index_select": (lambda x, i: x.index_select(1, i), (r(3, 5), n(4, low=0, high=5))),
    "index_tensor": (lambda x, i: x[i], (r(5, 3), n(4, low=-5, high=5))),
    "index_two_tensors": (lambda x, i, j: x[i, j], (r(5, 4), n(4, low=0, high=5), n(4, low=-4, high=4))),
    "index_broadcast": (lambda x, i, j: x[i[:, None], j], (r(5, 4), n(3, low=0, high=5), n(2, low=0, high=4))),
    "index_with_none": (lambda x, i: x[:, i], (r(2, 5, 3), n(4, low=0, high=5))),
    "index_between": (lambda x, i: x[None, 1:, i], (r(4, 5, 3), n(4, low=0, high=5))),
    "index_apart": (lambda x, i, j: x[i, :, j], (r(5, 2, 4), n(3, low=0, high=5), n(3, low=0, high=4))),
    "slices": (lambda x: (x[1:3], x[:, ::2], x[-2:, 1], x[..., None], x[:, :-1]), (r(4, 5),)),
    "slice_out_of_range": (lambda x: (x[2:100], x[-100:2], x[5:2]), (r(4, 5),)),
    "index_put": (lambda x, i, v: x.index_put((i,), v), (r(5, 3), torch.tensor([0, 3, -1]), r(3, 3))),
    "index_put_accumulate": (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        (r(5), torch.tensor([0, 3, 3, -1, 0]), r(5)),
    ),
    "index_put_two": (
        lambda x, i, j, v: x.index_put((i, j), v),
        (r(5, 4), torch.tensor([0, 3, 4]), torch.tensor([1, -1, 2]), r(3)),
    ),
    "index_put_second_axis": (
        lambda x, i, v: torch.ops.aten.index_put(x, [None, i], v),
        (r(2, 5), torch.tensor([0, 3]), r(2, 2)),
    ),
    "index_put_scalar": (lambda x, i: x.index_put((i,), torch.tensor(2.0)), (r(5, 3), torch.tensor([0, 3]))),
    "index_put_mask": (lambda x: x.index_put((x > 0,), torch.tensor(0.0)), (r(4, 3),)),
    "index_add": (lambda x, i, v: x.index_add(0, i, v, alpha=2), (r(5, 3), torch.tensor([0, 3, 3]), r(3, 3))),
    "index_copy": (lambda x, i, v: x.index_copy(1, i, v), (r(3, 5), torch.tensor([4, 0]), r(3, 2))),
    "index_fill": (lambda x, i: x.index_fill(1, i, 9.0), (r(3, 5), torch.tensor([4, 0]))),
    "masked_fill": (lambda x, m: (x.masked_fill(m, 2.0), x.masked_fill(m, -float("inf"))), (r(3, 4), b(3, 4))),
    "masked_fill_tensor": (lambda x, m, v: x.masked_fill(m, v), (n(3, 4), b(4), n())),
    "masked_scatter": (lambda x, m, v: x.masked_scatter(m, v), (r(3, 4), b(3, 4), r(12))),
    "scatter": (
        lambda x, i, v: x.scatter(1, i, v),
        (r(3, 5), torch.tensor([[0, 3], [4, 1], [2, 0]]), r(3, 2)),
    ),
    "scatter_value": (lambda x, i: x.scatter(1, i, 7.0), (r(3, 5), torch.tensor([[0], [4], [2]]))),
    "scatter_add": (lambda x, i, v: x.scatter_add(0, i, v), (r(3, 5), n(4, 5, low=0, high=3), r(4, 5))),
    "add_booleans": (
        lambda x, i, v: (x.scatter_add(0, i, v), x.index_add(0, i[0], v), x.index_put((i[0],), v, accumulate=True)),
        (b(4, 5) & b(4, 5), n(5, 5, low=0, high=4), b(5, 5)),
    ),
    "scatter_reduce_bool": (
        lambda x, i, v: tuple(x.scatter_reduce(0, i, v, how) for how in ("sum", "prod", "amax", "amin")),
        (b(3, 5), n(4, 5, low=0, high=3), b(4, 5)),
    ),
    "scatter_add_bool": (
        lambda x, i, v: x.scatter(0, i, v, reduce="add"),
        (b(3, 5), n(4, 5, low=0, high=3), b(4, 5)),
    ),
    "scatter_reduce_sum": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "sum"),
        (r(3, 5), n(4, 5, low=0, high=3), r(4, 5)),
    ),
    "scatter_reduce_amax": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "amax", include_self=False),
        (r(3, 5), n(4, 5, low=0, high=3), r(4, 5)),
    ),
    "scatter_reduce_mean": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "mean"),
        (r(3, 5), n(4, 5, low=0, high=3), r(4, 5)),
    ),
    "scatter_reduce_mean_int": (
        lambda x, i, v: (x.scatter_reduce(0, i, v, "mean"), x.scatter_reduce(0, i, v, "mean", include_self=False)),
        (torch.tensor([-7, 4, 9]), torch.tensor([0, 0, 2, 0]), torch.tensor([-2, -1, 4, -3])),
    ),
    "scatter_reduce_prod": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "prod"),
        (r(3, 5), n(4, 5, low=0, high=3), r(4, 5)),
    ),
    "select_scatter": (lambda x, v: x.select_scatter(v, 1, 2), (r(3, 5), r(3))),
    "slice_scatter": (lambda x, v: x.slice_scatter(v, 1, 1, 5, 2), (r(3, 6), r(3, 2))),
    "diagonal_scatter": (lambda x, v: x.diagonal_scatter(v, 1), (r(3, 5), r(3))),
    "embedding": (F.embedding, (n(2, 3, low=0, high=7), r(7, 4))),
    "embedding_i32": (F.embedding, (n(2, 3, low=0, high=7, dtype=torch.int32), r(7, 4))),
    "embedding_bag": (
        lambda i, w: (F.embedding_bag(i, w, mode="mean"), F.embedding_bag(i, w, mode="sum")),
        (n(2, 3, low=0, high=7), r(7, 4)),
    ),
    "embedding_bag_offsets": (
        lambda i, w, o: F.embedding_bag(i, w, o, mode="sum"),
        (n(6, low=0, high=7), r(7, 4), torch.tensor([0, 2])),
    ),
    "embedding_bag_unequal": (
        lambda i, w, o: (F.embedding_bag(i, w, o, mode="mean"), F.embedding_bag(i, w, o, mode="max")),
        (n(6, low=0, high=7), r(7, 4), torch.tensor([0, 2, 2])),
    ),
    "one_hot": (lambda i: F.one_hot(i, 6), (n(2, 3, low=0, high=6),)),
}

GROUPS["unique"] = {
    "unique": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (n(3, 4, low=0, high=5),)),
    "unique_floats": (lambda x: (torch.unique(x.round()), torch.unique(x > 0, return_counts=True)), (r(7),)),
    "unique_one": (
        lambda x: (
            torch.unique(x, return_inverse=True, return_counts=True),
            torch.unique_consecutive(x.reshape(1), return_counts=True),
            torch.unique(x.expand(1, 3), dim=0, return_inverse=True),
        ),
        (r(),),
    ),
    "unique_long": (lambda x: torch.unique(x, return_inverse=True), (n(300, low=0, high=50),)),
    "unique_slices": (
        lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True),
        ((r(2, 12, 2) > 0.5).float(),),
    ),
    "unique_consecutive": (
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        (n(3, 4, low=0, high=2),),
    ),
    "unique_consecutive_slices": (
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=-1),
        (n(2, 9, low=0, high=2),),
    ),
}

GROUPS["shapes"] = {
    "view": (lambda x: (x.view(6, 4), x.reshape(-1), x.view(2, -1, 2), x.flatten(1), x.ravel()), (r(2, 3, 4),)),
    "unflatten": (lambda x: x.unflatten(1, (2, -1)), (r(2, 6),)),
    "permute": (lambda x: (x.permute(2, 0, 1), x.transpose(0, 2), x.mT, x.swapaxes(0, 1)), (r(2, 3, 4),)),
    "movedim": (lambda x: (x.movedim(0, 2), torch.moveaxis(x, (0, 1), (2, 0))), (r(2, 3, 4),)),
    "squeeze": (lambda x: (x.squeeze(), x.squeeze(0), x.unsqueeze(-1), x.squeeze((0, 2))), (r(1, 3, 1),)),
    "expand": (lambda x: (x.expand(2, 3, 4), x.expand(-1, 5), x.broadcast_to(2, 3, 1)), (r(3, 1),)),
    "cat": (lambda a, c: (torch.cat([a, c]), torch.cat([a, a], 1)), (r(2, 3), r(4, 3))),
    "cat_promotes": (lambda a, c: torch.cat([a, c]), (r(2, 3), n(4, 3))),
    "stack": (lambda a, c: (torch.stack([a, c]), torch.stack([a, c], -1)), (r(2, 3), r(2, 3))),
    "hstack": (lambda a: (torch.hstack([a, a]), torch.vstack([a, a]), torch.dstack([a, a])), (r(2, 3),)),
    "split": (lambda x: (x.split(2), x.split([1, 4], 0), x.chunk(3), x.tensor_split(2)), (r(5, 3),)),
    "unbind": (lambda x: x.unbind(1), (r(2, 3),)),
    "unfold": (lambda x: x.unfold(1, 3, 2), (r(2, 7),)),
    "roll": (lambda x: (x.roll(1), x.roll((1, -2), (0, 1)), x.roll(7, 1)), (r(3, 4),)),
    "flip": (lambda x: (x.flip(0), x.flip((0, 1)), x.fliplr(), x.flipud()), (r(3, 4),)),
    "rot90": (lambda x: torch.rot90(x, 1, (0, 1)), (r(3, 4),)),
    "tril_triu": (lambda x: (x.tril(), x.triu(1), x.tril(-1)), (r(2, 4, 5),)),
    "tril_indices": (lambda x: x[torch.tril_indices(3, 3).unbind()], (r(3, 3),)),
    "diag": (lambda x, y: (torch.diag(x), torch.diag(y, 1), torch.diagonal(x, 1)), (r(3, 4), r(3))),
    "diag_embed": (lambda x: (torch.diag_embed(x), torch.diagflat(x, -1)), (r(2, 3),)),
    "meshgrid": (lambda a, c: torch.meshgrid(a, c, indexing="ij"), (r(3), r(4))),
    "cartesian_prod": (torch.cartesian_prod, (r(3), r(2))),
    "repeat": (lambda x: (x.repeat(2, 1), x.repeat(2, 1, 3), x.tile(2)), (r(2, 3),)),
    "repeat_interleave": (lambda x: (x.repeat_interleave(2, 0), x.repeat_interleave(3)), (r(2, 3),)),
    "repeat_interleave, each as often as a tensor says": (
        lambda x, t: (
            x.repeat_interleave(t, 0) * 2,
            x.repeat_interleave(t, output_size=6, dim=0),
            t.repeat_interleave(t),
        ),
        (r(4, 3), torch.tensor([1, 2, 0, 3])),
    ),
    "narrow": (lambda x: (x.narrow(1, 1, 2), x.select(0, -1)), (r(3, 4),)),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 2), 1), (r(3, 4),)),
    "block_diag": (torch.block_diag, (r(2, 3), r(1, 2))),
    "vander": (lambda x: torch.vander(x, 4), (r(3),)),
    "atleast": (lambda x: (torch.atleast_1d(x), torch.atleast_3d(x)), (r(),)),
    "empty": (lambda x: (x + 1, x.sum(0), x.sum(), x @ x.T, x.T @ x, x.mean(1), x.softmax(0)), (r(0, 4),)),
    "empty_strided": (
        lambda x: (torch.empty_strided((2, 3), (1, 2)).copy_(x), x.new_empty_strided((3, 2), (1, 3)).copy_(x.T)),
        (r(2, 3),),
    ),
    "resize_as": (lambda x, y: x.clone().resize_as_(y) + 1, (r(2, 3), r(2, 3))),
    "empty_cat": (lambda x, y: (torch.cat([x, y]), y[:0].sum(), y[:, :0].amax(0)), (r(0, 4), r(2, 4))),
}

GROUPS["makers_types"] = {
    "arange": (lambda x: (x + torch.arange(4), torch.arange(1, 9, 2) + x, torch.arange(0, 1, 0.25) + x), (r(4),)),
    "linspace_integers": (
        lambda x: (
            torch.linspace(4.3, 0, 50, dtype=torch.int64) + x,
            torch.linspace(x[0] * 0 + 4.3, -2.7, 50, dtype=torch.int64),
        ),
        (r(1),),
    ),
    "linspace": (lambda x: (torch.linspace(-1, 1, 5) + x, torch.logspace(0, 1, 5) + x), (r(5),)),
    "full_like": (lambda x: (torch.full_like(x, 3), x.new_zeros(2), torch.ones_like(x), torch.zeros(2) + x), (r(2),)),
    "eye": (lambda x: x * torch.eye(3) + torch.eye(3, 4)[:, :3], (r(3, 3),)),
    "casts": (
        lambda x: (x.int(), x.long(), x.double(), x.half(), x.bfloat16(), x.bool(), x.to(torch.int8)),
        (r(9) * 5,),
    ),
    "casts_int": (lambda x: (x.float(), x.bool(), x.to(torch.uint8), x.short()), (n(9),)),
    "casts_bool": (lambda x: (x.float(), x.long(), x.half(), x + x, x * 2), (b(9),)),
    "promotion": (
        lambda i, f, d: (i + f, f + d, i * 2.5, i / 2, d * 2, f + True),
        (n(3), r(3), r(3, dtype=torch.float64)),
    ),
    "promotion_half": (lambda h, f, i: (h + f, h * i, h + 1.5), (r(3).half(), r(3), n(3))),
    "promotion_bool": (lambda m, i, f: (m + i, m * f, m + 1, m / 2, ~m), (b(3), n(3), r(3))),
    "promotion_0d": (lambda f, d: (f * d, f + d.sum()), (r(3), r(dtype=torch.float64))),
    "promotion_i32_i64": (lambda a, c: (a + c, a * 3, a / c), (n(3, dtype=torch.int32), n(3, low=1))),
    "f64": (
        lambda x: (x.exp(), x.softmax(0), x @ x.T, x.sum(), x.erf(), x.tanh(), x**3),
        (r(3, 3, dtype=torch.float64),),
    ),
    "f16": (lambda x: (x.exp(), x.softmax(0), x @ x.T, x.sum(), x.tanh(), x * 2, F.gelu(x)), (r(3, 3).half(),)),
    "bf16": (lambda x: (x.exp(), x.softmax(0), x @ x.T, x.sum(), x.tanh(), x * 2, F.gelu(x)), (r(3, 3).bfloat16(),)),
    "in_place": (lambda x: (x.clone().add_(1).mul_(2).relu_(), x.clone().fill_(3)), (r(3, 4),)),
    "in_place_view": (lambda x: _store(x.clone()), (r(3, 4),)),
    "copy_promotes": (lambda x, i: x.clone().copy_(i), (r(3), n(3))),
    "item_free": (lambda x: x.new_tensor([1.0, 2.0]) + x, (r(2),)),
    "bernoulli_free": (lambda x: F.dropout(x, 0.5, training=False), (r(3, 4),)),
}


def _store(x: Tensor) -> Tensor:
    """Writes through views."""
    x[0] = 7.0
    x[:, 1] += 1
    x[1:, ::2].mul_(2)
    x.T[3].zero_()
    return x


GROUPS["norms_losses"] = {
    "batch_norm": (module(nn.BatchNorm2d(3)), (r(2, 3, 4, 5),)),
    "batch_norm_training": (lambda x: F.batch_norm(x, None, None, training=True), (r(4, 3, 5),)),
    "instance_norm": (lambda x: F.instance_norm(x), (r(2, 3, 4, 5),)),
    "group_norm": (lambda x, w, c: F.group_norm(x, 2, w, c), (r(2, 4, 3, 3), r(4), r(4))),
    "layer_norm": (lambda x, w, c: F.layer_norm(x, (5,), w, c), (r(2, 3, 5), r(5), r(5))),
    "layer_norm_2": (lambda x: F.layer_norm(x, (3, 5)), (r(2, 3, 5),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (5,), w), (r(2, 3, 5), r(5))),
    "rms_norm_half": (lambda x, w: F.rms_norm(x, (5,), w), ((r(2, 3, 5) * 900).half(), r(5).half())),
    "local_response_norm": (lambda x: F.local_response_norm(x, 2), (r(1, 4, 3, 3),)),
    "normalize": (lambda x: F.normalize(x, dim=1), (r(3, 5),)),
    "weight_norm": (module(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))), (r(2, 4),)),
    "mse": (lambda a, c: (F.mse_loss(a, c), F.mse_loss(a, c, reduction="none")), (r(3, 5), r(3, 5))),
    "l1": (F.l1_loss, (r(3, 5), r(3, 5))),
    "smooth_l1": (lambda a, c: F.smooth_l1_loss(a, c, beta=0.5), (r(3, 5), r(3, 5))),
    "huber": (lambda a, c: F.huber_loss(a, c, delta=0.7), (r(3, 5), r(3, 5))),
    "cross_entropy": (F.cross_entropy, (r(4, 5), n(4, low=0, high=5))),
    "cross_entropy_ignore": (
        lambda x, y: F.cross_entropy(x, y, ignore_index=2),
        (r(4, 5), torch.tensor([0, 2, 4, 2])),
    ),
    "cross_entropy_weight": (
        lambda x, y, w: F.cross_entropy(x, y, w, label_smoothing=0.1),
        (r(4, 5), n(4, low=0, high=5), u(5)),
    ),
    "linear_cross_entropy": (
        lambda x, w, c, y: [
            F.linear_cross_entropy(x, w, y, weight=c, reduction=reduction, options=_IN_CHUNKS)
            for reduction in ("mean", "sum", "none")
        ],
        (r(5, 3), r(4, 3), u(4), n(5, low=0, high=4)),
    ),
    "cross_entropy_2d": (F.cross_entropy, (r(2, 5, 3), n(2, 3, low=0, high=5))),
    "cross_entropy_soft": (F.cross_entropy, (r(4, 5), u(4, 5))),
    "nll": (lambda x, y: F.nll_loss(x, y, reduction="sum"), (r(4, 5), n(4, low=0, high=5))),
    "bce": (F.binary_cross_entropy, (u(3, 5), u(3, 5))),
    "bce_logits": (F.binary_cross_entropy_with_logits, (r(3, 5), u(3, 5))),
    "kl_div": (lambda a, c: F.kl_div(a, c, reduction="batchmean"), (r(3, 5), u(3, 5))),
    "hinge_embedding": (F.hinge_embedding_loss, (r(3, 5), n(3, 5, low=0, high=2) * 2 - 1)),
    "cosine_embedding": (F.cosine_embedding_loss, (r(3, 5), r(3, 5), torch.tensor([1, -1, 1]))),
    "margin_ranking": (F.margin_ranking_loss, (r(5), r(5), torch.tensor([1, -1, 1, 1, -1]))),
    "triplet_margin": (F.triplet_margin_loss, (r(3, 5), r(3, 5), r(3, 5))),
    "multi_margin": (F.multi_margin_loss, (r(3, 5), n(3, low=0, high=5))),
    "poisson_nll": (F.poisson_nll_loss, (r(3, 5), u(3, 5))),
}

GROUPS["recurrent"] = {
    "rnn_cell": (module(nn.RNNCell(3, 4)), (r(2, 3), r(2, 4))),
    "gru_cell": (module(nn.GRUCell(3, 4)), (r(2, 3), r(2, 4))),
    "lstm_cell": (module(nn.LSTMCell(3, 4)), (r(2, 3), (r(2, 4), r(2, 4)))),
    "rnn": (module(nn.RNN(3, 4)), (r(3, 2, 3),)),
    "gru": (module(nn.GRU(3, 4, batch_first=True)), (r(2, 3, 3),)),
    "lstm": (module(nn.LSTM(3, 4, num_layers=2)), (r(3, 2, 3),)),
    "lstm_both_ways": (module(nn.LSTM(3, 4, bidirectional=True)), (r(3, 2, 3),)),
    "attention": (module(nn.MultiheadAttention(8, 2, batch_first=True)), (r(1, 5, 8), r(1, 5, 8), r(1, 5, 8))),
    "encoder_layer": (module(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), (r(1, 5, 8),)),
}
