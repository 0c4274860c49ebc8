#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace lockstep {

/// Returns the message of the `Error` that `call` throws. For anything else, records a failure and returns
/// what came instead.
template <typename Error, typename Fn>
std::string message_of(const Fn& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw another type: " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "threw nothing";
  return "";
}

}  // namespace lockstep
