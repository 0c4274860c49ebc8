#pragma once

#include <cxxopts.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep::benchmarks {

/// The number that a flag was given. Throws std::invalid_argument naming the flag for less than `least`.
inline int64_t at_least(const cxxopts::ParseResult& flags, const std::string& name, int64_t least) {
  const auto value = flags[name].as<int64_t>();
  if (value >= least) return value;
  throw std::invalid_argument("--" + name + ": expected at least " + std::to_string(least) + ", but got " +
                              std::to_string(value));
}

}  // namespace lockstep::benchmarks
