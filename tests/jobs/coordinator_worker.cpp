// A task of a coordinated job: coordinator_worker CLOSURES MILLISECONDS. Each closure squares its number and
// takes MILLISECONDS; the chief prints the sum of the squares.
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/strategies/coordinator/cluster_coordinator.h"

namespace lockstep {
namespace {

void schedule(ClusterCoordinator& coordinator, int64_t num_closures) {
  std::vector<RemoteValue> squares;
  for (int64_t i = 0; i < num_closures; ++i) squares.push_back(coordinator.schedule("square", i));
  coordinator.join();
  int64_t sum = 0;
  for (const auto square : coordinator.fetch<int64_t>(squares)) sum += square;
  std::cout << "sum " << sum << ", lost " << coordinator.num_lost_workers() << std::endl;
}

int work(int64_t num_closures, std::chrono::milliseconds duration) {
  const std::shared_ptr<const ClusterResolver> resolver = resolve_cluster(process_environment());
  try {
    ClusterCoordinator coordinator(resolver);
    coordinator.define("square", [&](int64_t number) {
      std::cout << "at " << number << std::endl;
      std::this_thread::sleep_for(duration);
      return number * number;
    });
    if (coordinator.is_chief()) {
      schedule(coordinator, num_closures);
    } else {
      coordinator.serve();
    }
    return 0;
  } catch (...) {
    throw apps::describe_failure(std::current_exception(), resolver.get());
  }
}

int end_by(const apps::Failure& failure) {
  std::cerr << "coordinator_worker: error: " << failure.message << std::endl;
  return failure.exit_code;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "expected: coordinator_worker CLOSURES MILLISECONDS\n";
    return 2;
  }
  try {
    return lockstep::work(std::stoll(argv[1]), std::chrono::milliseconds(std::stoll(argv[2])));
  } catch (const lockstep::apps::Failure& failure) {
    return lockstep::end_by(failure);
  } catch (...) {
    return lockstep::end_by(lockstep::apps::describe_failure(std::current_exception()));
  }
}
