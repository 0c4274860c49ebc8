#pragma once

#include <exception>
#include <string>

namespace lockstep {

/// Returns an error's message. Leaves out the stack frames that what() of LibTorch's errors adds.
///
/// Example:
///
///     } catch (const std::exception&) {
///       std::cerr << "error: " << error_text(std::current_exception()) << '\n';
///     }
std::string error_text(const std::exception_ptr& error);

/// Returns the first line of error_text().
std::string error_line(const std::exception_ptr& error);

}  // namespace lockstep
