#pragma once

#include <ATen/core/Tensor.h>
#include <torch/data/example.h>

#include <tuple>
#include <vector>

#include "lockstep/datasets/clicks/click_row.h"

namespace lockstep {

/// Rows of click logs: {numbers [n, 13] float32 (click_feature()), ids [n, 26] int64 (click_id())}, and as
/// target labels [n] float32.
using ClickBatch = torch::data::Example<std::tuple<at::Tensor, at::Tensor>, at::Tensor>;

ClickBatch click_batch(const std::vector<ClickRow>& rows);

}  // namespace lockstep
