#include "lockstep/benchmarks/run_program.h"

#include <iostream>
#include <stdexcept>

namespace lockstep::benchmarks {

int run_program(const std::function<int()>& run) {
  try {
    return run();
  } catch (const std::runtime_error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 2;
  }
}

}  // namespace lockstep::benchmarks
