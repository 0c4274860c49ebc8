#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

namespace lockstep {

inline std::string bytes_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Returns the message of the `Error` that `call` throws, or "no error".
template <typename Error>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type: " << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace lockstep
