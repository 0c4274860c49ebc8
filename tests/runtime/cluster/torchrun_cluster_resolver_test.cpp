#include "lockstep/runtime/cluster/torchrun_cluster_resolver.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

/// Variables as torchrun sets them for the fourth of four processes on two machines.
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_MAX_RESTARTS", "3"},
                             {"TORCHELASTIC_RUN_ID", "run-7"}};

std::string torchrun_refusal(const Variables& variables) {
  return message_of<InvalidArgument>([&] { TorchrunClusterResolver resolver(environment_of(variables)); });
}

TEST(TorchrunClusterResolver, ReadsTheVariables) {
  const TorchrunClusterResolver resolver(environment_of(kTorchrun));
  EXPECT_EQ(resolver.source(), "torchrun (RANK=3 of WORLD_SIZE=4)");
  EXPECT_EQ(resolver.rank(), 3);
  EXPECT_EQ(resolver.world_size(), 4);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 3);
  EXPECT_EQ(resolver.local_rank(), 1);
  EXPECT_EQ(resolver.local_world_size(), 2);
  EXPECT_EQ(resolver.master(), (HostPort{.host = "node0", .port = 29500}));
  EXPECT_TRUE(resolver.is_master_served_by_launcher());
  EXPECT_EQ(resolver.restart_count(), 2);
  EXPECT_EQ(resolver.job_id(), "run-7");
  EXPECT_TRUE(resolver.cluster_spec().empty());
  EXPECT_FALSE(resolver.rendezvous_file());
}

TEST(TorchrunClusterResolver, ReadsVariablesSetByHand) {
  const TorchrunClusterResolver resolver(
      environment_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "fd00::2"}, {"MASTER_PORT", "1"}}));
  EXPECT_EQ(resolver.rank(), 0);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.master(), (HostPort{.host = "fd00::2", .port = 1}));
  EXPECT_EQ(resolver.local_world_size(), 1);
  EXPECT_FALSE(resolver.is_master_served_by_launcher());
  EXPECT_EQ(resolver.restart_count(), 0);
}

TEST(TorchrunClusterResolver, NeedsNoMasterForAWorldOfOne) {
  const TorchrunClusterResolver resolver(environment_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_EQ(resolver.world_size(), 1);
  EXPECT_FALSE(resolver.master());
}

TEST(TorchrunClusterResolver, TakesTheDefaultRunIdForNone) {
  EXPECT_EQ(
      TorchrunClusterResolver(environment_of(changed(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}}))).job_id(),
      "");
}

TEST(TorchrunClusterResolver, UsesItsOwnStoreWhereTheAgentOffersNone) {
  const auto variables = changed(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  EXPECT_FALSE(TorchrunClusterResolver(environment_of(variables)).is_master_served_by_launcher());
}

TEST(TorchrunClusterResolver, NamesAMalformedVariableAndItsValue) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"RANK", "x"}}, "RANK to be a whole number from 0 to 3, but got 'x'"},
      {{{"RANK", ""}}, "RANK to be a whole number from 0 to 3, but got ''"},
      {{{"RANK", "4"}}, "RANK to be a whole number from 0 to 3, but got '4'"},
      {{{"RANK", "-1"}}, "RANK to be a whole number from 0 to 3, but got '-1'"},
      {{{"RANK", "1.0"}}, "RANK to be a whole number from 0 to 3, but got '1.0'"},
      {{{"RANK", " 1"}}, "RANK to be a whole number from 0 to 3, but got ' 1'"},
      {{{"RANK", "4294967297"}}, "RANK to be a whole number from 0 to 3, but got '4294967297'"},
      {{{"WORLD_SIZE", "0"}}, "WORLD_SIZE to be a whole number of 1 or more, but got '0'"},
      {{{"WORLD_SIZE", "two"}}, "WORLD_SIZE to be a whole number of 1 or more, but got 'two'"},
      {{{"LOCAL_RANK", "2"}}, "LOCAL_RANK to be a whole number from 0 to 1, but got '2'"},
      {{{"LOCAL_WORLD_SIZE", "5"}}, "LOCAL_WORLD_SIZE to be a whole number from 1 to 4, but got '5'"},
      {{{"MASTER_ADDR", "a b"}}, "MASTER_ADDR to be a name or an address as host, but got 'a b'"},
      {{{"MASTER_ADDR", ""}}, "MASTER_ADDR to be a name or an address as host, but got ''"},
      {{{"MASTER_PORT", "99999"}}, "MASTER_PORT to be a whole number from 1 to 65535, but got '99999'"},
      {{{"MASTER_PORT", "0"}}, "MASTER_PORT to be a whole number from 1 to 65535, but got '0'"},
      {{{"TORCHELASTIC_USE_AGENT_STORE", "yes"}},
       "TORCHELASTIC_USE_AGENT_STORE to be True or False, but got 'yes'"},
      {{{"TORCHELASTIC_RESTART_COUNT", "-1"}},
       "TORCHELASTIC_RESTART_COUNT to be a whole number of 0 or more, but got '-1'"},
  };
  for (const auto& [changes, message] : cases) {
    EXPECT_EQ(torchrun_refusal(changed(kTorchrun, changes)), "[torchrun] expected " + message);
  }
}

TEST(TorchrunClusterResolver, NamesAMissingVariable) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"RANK", "a whole number"},       {"WORLD_SIZE", "a whole number"},
      {"LOCAL_RANK", "a whole number"}, {"LOCAL_WORLD_SIZE", "a whole number"},
      {"MASTER_ADDR", "set"},           {"MASTER_PORT", "a whole number"},
  };
  for (const auto& [name, expected] : cases) {
    std::string message = "[torchrun] expected ";
    message.append(name).append(" to be ").append(expected).append(", but it is not set");
    EXPECT_EQ(torchrun_refusal(without(kTorchrun, name)), message);
  }
}

TEST(TorchrunClusterResolver, DetectsItsVariables) {
  const auto detects = [](const Variables& variables) {
    return TorchrunClusterResolver::detects(environment_of(variables));
  };
  EXPECT_TRUE(detects(kTorchrun));
  EXPECT_TRUE(detects({{"RANK", "x"}}));
  EXPECT_TRUE(detects({{"WORLD_SIZE", "2"}}));
  EXPECT_TRUE(detects({{"TORCHELASTIC_RUN_ID", "7"}}));
  EXPECT_TRUE(detects({{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}));
  EXPECT_FALSE(detects({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}));
  EXPECT_FALSE(detects({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  EXPECT_FALSE(detects({{"LOCAL_RANK", "0"}}));
}

}  // namespace
}  // namespace lockstep
