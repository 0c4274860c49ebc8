#pragma once

namespace lockstep {

/// A token that is long enough for ClusterOptions::token, for jobs within one test.
inline constexpr char kJobToken[] = "3a7f0c91d25be8846f1e02b7c9a4d35866e0f7182b9c4da53710fe8b6c2d9e45";

}  // namespace lockstep
