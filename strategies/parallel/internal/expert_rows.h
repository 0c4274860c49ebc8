#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// The rows that experts get, one for each choice that was not dropped, and the choices of tokens that they
/// belong to. Choice c of token t has number t * choices of a token + c.
struct ExpertRows {
  at::Tensor choices;  ///< int64 [rows]: the choice of each row
  at::Tensor tokens;   ///< int64 [rows]: the token of each row
  at::Tensor rows;     ///< int64 [tokens, choices]: the row of each choice; the number of rows if it has none
};

/// Returns the features of each row's token: [rows, features] from [tokens, features].
at::Tensor rows_of_tokens(const at::Tensor& tokens, const ExpertRows& places);

/// Returns for each token the sum of its rows, each times the weight of its choice: [tokens, features] from
/// [rows, features] and [number of choices]. On CPUs, reads each row once in forward and once in backward.
at::Tensor weighted_sums_of_rows(const at::Tensor& rows, const at::Tensor& weights, const ExpertRows& places);

}  // namespace lockstep
