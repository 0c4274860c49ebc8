#pragma once

#include <ATen/core/Tensor.h>
#include <torch/data/example.h>

#include <tuple>
#include <vector>

#include "lockstep/datasets/clicks/click_row.h"

namespace lockstep {

/// A batch of click log rows. `data` is {numbers [n, 13] float32 (click_feature()), ids [n, 26] int64
/// (click_id())}; `target` is the labels [n] float32.
using ClickBatch = torch::data::Example<std::tuple<at::Tensor, at::Tensor>, at::Tensor>;

/// Returns these rows as a batch on the CPU.
ClickBatch click_batch(const std::vector<ClickRow>& rows);

}  // namespace lockstep
