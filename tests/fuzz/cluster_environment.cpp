#include <map>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/tests/fuzz/fuzz.h"
#include "lockstep/tests/support/environment_of.h"

// The variables that launchers set, one NAME=VALUE per line.

namespace lockstep::fuzz {
namespace {

Variables variables_of(std::string_view text) {
  Variables variables;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t sign = line.find('=');
    // A zero byte ends the value of a real environment variable.
    if (sign == std::string_view::npos || line.find('\0') != std::string_view::npos) continue;
    variables[std::string(line.substr(0, sign))] = line.substr(sign + 1);
  }
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto environment = environment_of(variables_of(text_of(data, size)));
  const auto resolver =
      accepted<InvalidArgument>([&] { return resolve_cluster(environment); }, expect_plain_line);
  if (!resolver || *resolver == nullptr) return 0;
  const auto& cluster = **resolver;
  expect(cluster.world_size() >= 1, "a world of one process or more");
  expect(cluster.local_world_size() >= 1 && cluster.local_rank() >= 0 &&
             cluster.local_rank() < cluster.local_world_size(),
         "a local rank within the machine");
  expect(cluster.restart_count() >= 0, "no negative number of restarts");
  expect(cluster.task_id() >= 0, "no negative task");
  const auto master = cluster.master();
  if (master) expect(master->port >= 1 && master->port <= 65535, "a port of the master");
  if (cluster.task_type() == "chief" || cluster.task_type() == "worker") {
    expect(cluster.rank() >= 0 && cluster.rank() < cluster.world_size(), "a rank within the world");
    expect(cluster.local_world_size() <= cluster.world_size(), "a machine's processes among the world's");
    expect(cluster.world_size() == 1 || master || cluster.rendezvous_file(), "a place to meet");
  }
  expect_plain_line(cluster.source());
  return 0;
}

}  // namespace lockstep::fuzz
