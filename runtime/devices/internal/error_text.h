#pragma once

#include <exception>
#include <string>

namespace lockstep {

/// Returns the first line of an error's message, without the backtrace of LibTorch's errors.
std::string error_line(const std::exception_ptr& error);

}  // namespace lockstep
