#pragma once

#include <exception>
#include <string>

namespace lockstep {

/// The first line of an error's message, without the backtrace that LibTorch's errors carry.
std::string error_line(const std::exception_ptr& error);

}  // namespace lockstep
