#include "lockstep/runtime/cluster/tpu_cluster_resolver.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

/// Variables of the third of four pods of an indexed job in Google Kubernetes Engine: four chips a host.
const Variables kTpuPod = {{"TPU_WORKER_HOSTNAMES", "train-0.svc,train-1.svc,train-2.svc,train-3.svc"},
                           {"TPU_WORKER_ID", "2"},
                           {"JOB_COMPLETION_INDEX", "2"},
                           {"TPU_PROCESS_BOUNDS", "2,2,1"},
                           {"TPU_CHIPS_PER_PROCESS_BOUNDS", "2,2,1"}};

/// Variables as PyTorch/XLA sets them for the second of four processes on one host.
const Variables kTpuProcess = {
    {"TPU_PROCESS_ADDRESSES", "localhost:8476,localhost:8477,localhost:8478,localhost:8479"},
    {"CLOUD_TPU_TASK_ID", "1"},
    {"TPU_PROCESS_PORT", "8477"},
    {"TPU_PROCESS_BOUNDS", "2,2,1"},
    {"TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1"},
    {"TPU_VISIBLE_CHIPS", "1"}};

/// Variables as torch_tpu and torchrun set them for the sixth of eight processes on two hosts.
const Variables kTorchTpu = {{"TPU_WORKER_HOSTNAMES", "10.0.0.1,10.0.0.2"},
                             {"TORCH_TPU_SLICEBUILDER_ADDRESSES",
                              "10.0.0.1:8070,10.0.0.1:8071,10.0.0.1:8072,10.0.0.1:8073,"
                              "10.0.0.2:8070,10.0.0.2:8071,10.0.0.2:8072,10.0.0.2:8073"},
                             {"TORCH_TPU_TOPOLOGY", "2x4x1"},
                             {"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "29400"},
                             {"TORCHELASTIC_RUN_ID", "run-7"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};

TPUClusterResolver tpu_resolver(const Variables& variables) {
  return TPUClusterResolver(environment_of(variables));
}

std::string tpu_refusal(const Variables& variables) {
  return message_of<InvalidArgument>([&] { tpu_resolver(variables); });
}

TEST(TPUClusterResolver, ReadsPodsOfKubernetes) {
  const auto resolver = tpu_resolver(kTpuPod);
  EXPECT_EQ(resolver.source(), "TPU (TPU_WORKER_ID=2 of 4 hosts)");
  EXPECT_EQ(resolver.rank(), 2);
  EXPECT_EQ(resolver.world_size(), 4);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 2);
  EXPECT_EQ(resolver.local_rank(), 0);
  EXPECT_EQ(resolver.local_world_size(), 1);
  EXPECT_EQ(resolver.master(), (HostPort{.host = "train-0.svc", .port = 29500}));
  EXPECT_TRUE(resolver.cluster_spec().empty());
  EXPECT_EQ(tpu_resolver(without(kTpuPod, "TPU_WORKER_ID")).source(),
            "TPU (JOB_COMPLETION_INDEX=2 of 4 hosts)");
}

TEST(TPUClusterResolver, ReadsProcessesOfPyTorchXla) {
  const auto resolver = tpu_resolver(kTpuProcess);
  EXPECT_EQ(resolver.source(), "TPU (CLOUD_TPU_TASK_ID=1 of 4 in TPU_PROCESS_ADDRESSES)");
  EXPECT_EQ(resolver.rank(), 1);
  EXPECT_EQ(resolver.world_size(), 4);
  EXPECT_EQ(resolver.local_rank(), 1);
  EXPECT_EQ(resolver.local_world_size(), 4);
  EXPECT_EQ(resolver.master(), (HostPort{.host = "localhost", .port = 29500}));
}

TEST(TPUClusterResolver, ReadsProcessesOfTorchTpu) {
  const auto resolver = tpu_resolver(kTorchTpu);
  EXPECT_EQ(resolver.source(), "TPU (RANK=5 of WORLD_SIZE=8)");
  EXPECT_EQ(resolver.rank(), 5);
  EXPECT_EQ(resolver.world_size(), 8);
  EXPECT_EQ(resolver.local_rank(), 1);
  EXPECT_EQ(resolver.local_world_size(), 4);
  EXPECT_EQ(resolver.master(), (HostPort{.host = "10.0.0.1", .port = 29400}));
  EXPECT_TRUE(resolver.is_master_served_by_launcher());
  EXPECT_EQ(resolver.restart_count(), 2);
  EXPECT_EQ(resolver.job_id(), "run-7");
}

TEST(TPUClusterResolver, NumbersTheProcessesHostByHost) {
  for (int host = 0; host < 4; ++host) {
    for (int local = 0; local < 4; ++local) {
      const auto resolver = tpu_resolver(changed(kTpuPod, {{"TPU_WORKER_ID", std::to_string(host)},
                                                           {"JOB_COMPLETION_INDEX", std::to_string(host)},
                                                           {"TORCH_TPU_DEVICES_PER_HOST", "4"},
                                                           {"LOCAL_RANK", std::to_string(local)},
                                                           {"TPU_VISIBLE_CHIPS", std::to_string(local)}}));
      EXPECT_EQ(resolver.rank(), host * 4 + local);
      EXPECT_EQ(resolver.world_size(), 16);
      EXPECT_EQ(resolver.local_rank(), local);
      EXPECT_EQ(resolver.local_world_size(), 4);
    }
  }
}

/// Joins the texts of a list of `count` by commas.
template <typename Text>
std::string comma_list(int count, const Text& text) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + text(i);
  return list;
}

TEST(TPUClusterResolver, AgreesOnTheRankByAnyOfTheVariables) {
  for (int hosts = 1; hosts <= 4; ++hosts) {
    for (int per_host : {1, 2, 4}) {
      const int size = hosts * per_host;
      const std::string names = comma_list(hosts, [](int host) { return "h" + std::to_string(host); });
      const std::string addresses = comma_list(size, [&](int rank) {
        return "h" + std::to_string(rank / per_host) + ":" + std::to_string(8070 + rank % per_host);
      });
      for (int rank = 0; rank < size; ++rank) {
        const std::string host = std::to_string(rank / per_host), local = std::to_string(rank % per_host);
        const std::string all = std::to_string(per_host);
        const Variables launcher = {{"RANK", std::to_string(rank)},
                                    {"WORLD_SIZE", std::to_string(size)},
                                    {"LOCAL_RANK", local},
                                    {"LOCAL_WORLD_SIZE", all},
                                    {"MASTER_ADDR", "h0"}};
        const Variables indexed = {{"TPU_WORKER_HOSTNAMES", names},
                                   {"JOB_COMPLETION_INDEX", host},
                                   {"TORCH_TPU_DEVICES_PER_HOST", all},
                                   {"LOCAL_RANK", local}};
        const Variables tasks = {{"TPU_PROCESS_ADDRESSES", addresses},
                                 {"CLOUD_TPU_TASK_ID", std::to_string(rank)},
                                 {"TPU_VISIBLE_CHIPS", local},
                                 {"TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1"},
                                 {"TPU_PROCESS_BOUNDS", std::to_string(hosts) + "," + all + ",1"}};
        const Variables slice = {{"TORCH_TPU_SLICEBUILDER_ADDRESSES", addresses},
                                 {"TORCH_TPU_TOPOLOGY", all + "x" + std::to_string(hosts)},
                                 {"TPU_WORKER_ID", host},
                                 {"LOCAL_RANK", local}};
        Variables everything = launcher;
        for (const Variables& variables : {indexed, tasks, slice})
          everything = changed(everything, variables);
        for (const Variables& variables : {launcher, indexed, tasks, slice, everything}) {
          const auto resolver = tpu_resolver(variables);
          EXPECT_EQ(resolver.rank(), rank) << resolver.source();
          EXPECT_EQ(resolver.world_size(), size) << resolver.source();
          EXPECT_EQ(resolver.local_rank(), rank % per_host) << resolver.source();
          EXPECT_EQ(resolver.local_world_size(), per_host) << resolver.source();
          if (size > 1)
            EXPECT_EQ(resolver.master(), (HostPort{.host = "h0", .port = 29500})) << resolver.source();
        }
      }
    }
  }
}

TEST(TPUClusterResolver, TakesASingleHostForASingleProcess) {
  for (const Variables& variables :
       {Variables{}, Variables{{"TPU_WORKER_HOSTNAMES", "localhost"}, {"TPU_WORKER_ID", "0"}},
        Variables{{"TPU_WORKER_HOSTNAMES", ""}, {"TPU_WORKER_ID", ""}, {"RANK", ""}}}) {
    const auto resolver = tpu_resolver(variables);
    EXPECT_EQ(resolver.rank(), 0);
    EXPECT_EQ(resolver.world_size(), 1);
    EXPECT_FALSE(resolver.master());
  }
}

TEST(TPUClusterResolver, CountsTwoDevicesOnAChipOfTpu7x) {
  const Variables tpu7x = {{"TPU_ACCELERATOR_TYPE", "tpu7x-8"},
                           {"RANK", "7"},
                           {"WORLD_SIZE", "8"},
                           {"LOCAL_RANK", "7"},
                           {"LOCAL_WORLD_SIZE", "8"},
                           {"TPU_WORKER_HOSTNAMES", "localhost"},
                           {"TORCH_TPU_TOPOLOGY", "2,2,1,2"},
                           {"TPU_PROCESS_BOUNDS", "1,1,1"},
                           {"TPU_CHIPS_PER_PROCESS_BOUNDS", "2,2,1"}};
  EXPECT_EQ(tpu_resolver(tpu7x).rank(), 7);
  EXPECT_EQ(tpu_resolver(changed(tpu7x, {{"TORCH_TPU_TOPOLOGY", "2,2,1"}})).rank(), 7);
  EXPECT_EQ(tpu_refusal(changed(tpu7x, {{"TPU_ACCELERATOR_TYPE", "v6e-4"}})),
            "[TPU] expected TPU_CHIPS_PER_PROCESS_BOUNDS to be chips for the 8 processes of a host, or two "
            "processes would use one chip, but got '2,2,1'");
}

TEST(TPUClusterResolver, WantsRankAndWorldSizeTogether) {
  EXPECT_EQ(tpu_refusal(without(kTorchTpu, "WORLD_SIZE")),
            "[TPU] expected WORLD_SIZE to be set together with RANK, as torchrun does, but it is not set");
  EXPECT_EQ(tpu_refusal(without(kTorchTpu, "RANK")),
            "[TPU] expected RANK to be set together with WORLD_SIZE, as torchrun does, but it is not set");
}

TEST(TPUClusterResolver, NamesAMalformedVariableAndItsValue) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {changed(kTpuPod, {{"TPU_WORKER_ID", "4"}}),
       "TPU_WORKER_ID to be a whole number from 0 to 3, but got '4'"},
      {changed(kTpuPod, {{"JOB_COMPLETION_INDEX", "-1"}}),
       "JOB_COMPLETION_INDEX to be a whole number from 0 to 3, but got '-1'"},
      {changed(kTpuPod, {{"TPU_WORKER_HOSTNAMES", "a,b c"}}),
       "TPU_WORKER_HOSTNAMES[1] to be a name or an address as host, but got 'b c'"},
      {changed(kTpuPod, {{"MASTER_PORT", "0"}}),
       "MASTER_PORT to be a whole number from 1 to 65535, but got '0'"},
      {changed(kTpuPod, {{"TPU_PROCESS_BOUNDS", "2,x,1"}}),
       "TPU_PROCESS_BOUNDS to be up to four sizes of 1 or more, such as 2,2,1, but got '2,x,1'"},
      {changed(kTpuPod, {{"TPU_PROCESS_BOUNDS", "2000,2000,2000"}}),
       "TPU_PROCESS_BOUNDS to be up to four sizes of 1 or more, such as 2,2,1, but got '2000,2000,2000'"},
      {changed(kTpuProcess, {{"CLOUD_TPU_TASK_ID", "4"}}),
       "CLOUD_TPU_TASK_ID to be a whole number from 0 to 3, but got '4'"},
      {changed(kTpuProcess, {{"TPU_VISIBLE_CHIPS", "1,"}}),
       "TPU_VISIBLE_CHIPS[1] to be the number of a chip, 0 or more, but got ''"},
      {changed(kTorchTpu, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK to be a whole number from 0 to 3, but got '4'"},
      {changed(kTorchTpu, {{"MEGASCALE_NUM_SLICES", "2"}}),
       "MEGASCALE_NUM_SLICES to be 1: run a job of several slices as one job for each slice, but got '2'"},
  };
  for (const auto& [variables, message] : cases) {
    EXPECT_EQ(tpu_refusal(variables), "[TPU] expected " + message);
  }
}

TEST(TPUClusterResolver, RefusesContradictingCounts) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {changed(kTpuPod, {{"TPU_PROCESS_BOUNDS", "2,1,1"}}),
       "TPU_PROCESS_BOUNDS to be sizes that multiply to the number of processes, 4 on the hosts of "
       "TPU_WORKER_HOSTNAMES, but got '2,1,1'"},
      {changed(kTorchTpu, {{"TPU_HOST_BOUNDS", "3"}}),
       "TPU_HOST_BOUNDS to be sizes that multiply to the number of processes, WORLD_SIZE=8, or of hosts, 2, "
       "but "
       "got '3'"},
      {changed(kTorchTpu, {{"TORCH_TPU_TOPOLOGY", "4,4,1"}}),
       "TORCH_TPU_TOPOLOGY to be sizes that multiply to the number of processes, WORLD_SIZE=8, for each "
       "process "
       "uses one device, but got '4,4,1'"},
      {changed(kTorchTpu, {{"TORCH_TPU_SLICEBUILDER_ADDRESSES", "a:1,b:1"}}),
       "TORCH_TPU_SLICEBUILDER_ADDRESSES to be one address for each process, WORLD_SIZE=8, but got "
       "'a:1,b:1'"},
      {changed(kTorchTpu, {{"TPU_PROCESS_ADDRESSES", "a:1,b:1,c:1"}}),
       "TPU_PROCESS_ADDRESSES to be one address for the number of processes, WORLD_SIZE=8, or of hosts, 2, "
       "but got "
       "'a:1,b:1,c:1'"},
      {changed(kTorchTpu, {{"LOCAL_WORLD_SIZE", "8"}}),
       "LOCAL_WORLD_SIZE to be the number of processes of a host, WORLD_SIZE=8 divided by the 2 hosts of "
       "TPU_WORKER_HOSTNAMES, but got '8'"},
      {changed(without(kTorchTpu, "LOCAL_WORLD_SIZE"), {{"TPU_WORKER_HOSTNAMES", "a,b,c"}}),
       "TPU_WORKER_HOSTNAMES to be hosts with equal numbers of the processes, WORLD_SIZE=8, but got 'a,b,c'"},
  };
  for (const auto& [variables, message] : cases) {
    EXPECT_EQ(tpu_refusal(variables), "[TPU] expected " + message);
  }
}

TEST(TPUClusterResolver, RefusesContradictingIndices) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {changed(kTpuPod, {{"JOB_COMPLETION_INDEX", "1"}}),
       "TPU_WORKER_ID to be the same as JOB_COMPLETION_INDEX=1: unset whichever does not count the hosts of "
       "TPU_WORKER_HOSTNAMES, but got '2'"},
      {without(without(kTpuPod, "TPU_WORKER_ID"), "JOB_COMPLETION_INDEX"),
       "TPU_WORKER_ID to be the index of this host in TPU_WORKER_HOSTNAMES, or RANK and WORLD_SIZE to be "
       "set, but "
       "it is not set"},
      {changed(kTpuPod, {{"TORCH_TPU_DEVICES_PER_HOST", "4"}}),
       "LOCAL_RANK to be the index of this process on its host, 0 to 3, but it is not set"},
      {changed(kTorchTpu, {{"LOCAL_RANK", "2"}}),
       "LOCAL_RANK to be 1, since the processes of a host have consecutive ranks, by RANK=5 of WORLD_SIZE=8, "
       "but "
       "got '2'"},
      {changed(kTorchTpu, {{"CLOUD_TPU_TASK_ID", "4"}}),
       "CLOUD_TPU_TASK_ID to be this process's index, which is 5 by RANK=5 of WORLD_SIZE=8, but got '4'"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}},
       "LOCAL_WORLD_SIZE to be set together with LOCAL_RANK, but it is not set"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}},
       "MASTER_ADDR to be the host of rank 0, or TPU_WORKER_HOSTNAMES to be set, but it is not set"},
  };
  for (const auto& [variables, message] : cases) {
    EXPECT_EQ(tpu_refusal(variables), "[TPU] expected " + message);
  }
}

TEST(TPUClusterResolver, TakesATaskOfTheCloudForAHost) {
  const Variables cloud = changed(kTorchTpu, {{"TPU_PROCESS_ADDRESSES", "10.0.0.1:8471,10.0.0.2:8471"}});
  EXPECT_EQ(tpu_resolver(changed(cloud, {{"CLOUD_TPU_TASK_ID", "1"}})).rank(), 5);
  EXPECT_EQ(
      tpu_refusal(changed(cloud, {{"CLOUD_TPU_TASK_ID", "0"}})),
      "[TPU] expected CLOUD_TPU_TASK_ID to be this process's index, which is 1 by RANK=5 of WORLD_SIZE=8, "
      "but got '0'");
}

TEST(TPUClusterResolver, RefusesTwoProcessesOnOneChip) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {changed(kTpuProcess, {{"TPU_VISIBLE_CHIPS", "0"}}),
       "TPU_VISIBLE_CHIPS to be chips from 1 on for LOCAL_RANK=1, or two processes would use one chip: a "
       "host's "
       "processes take its chips in the order of their ranks, but got '0'"},
      {changed(kTpuProcess, {{"TPU_VISIBLE_CHIPS", "2,2"}}),
       "TPU_VISIBLE_CHIPS[1] to be listed once, or two processes would use one chip, but got '2' as in "
       "TPU_VISIBLE_CHIPS[0]"},
      {changed(kTpuProcess, {{"TPU_VISIBLE_CHIPS", "0,1,2,3"}}),
       "TPU_CHIPS_PER_PROCESS_BOUNDS to be sizes that multiply to 4, the number of chips in "
       "TPU_VISIBLE_CHIPS, but "
       "got '1,1,1'"},
      {changed(kTpuProcess, {{"TPU_PROCESS_ADDRESSES", "a:1,b:1,A:1"}}),
       "TPU_PROCESS_ADDRESSES[2] to be listed once, or two processes would use one chip, but got 'A:1' as in "
       "TPU_PROCESS_ADDRESSES[0]"},
      {changed(kTpuPod, {{"TPU_WORKER_HOSTNAMES", "a,b,a,c"}}),
       "TPU_WORKER_HOSTNAMES[2] to be listed once, or two processes would use one chip, but got 'a' as in "
       "TPU_WORKER_HOSTNAMES[0]"},
  };
  for (const auto& [variables, message] : cases) {
    EXPECT_EQ(tpu_refusal(variables), "[TPU] expected " + message);
  }
}

TEST(TPUClusterResolver, DetectsListsOfSeveral) {
  const auto detects = [](const Variables& variables) {
    return TPUClusterResolver::detects(environment_of(variables));
  };
  EXPECT_TRUE(detects(kTpuPod));
  EXPECT_TRUE(detects(kTpuProcess));
  EXPECT_TRUE(detects(kTorchTpu));
  EXPECT_TRUE(detects({{"TPU_WORKER_HOSTNAMES", ","}}));
  EXPECT_FALSE(detects({{"TPU_WORKER_HOSTNAMES", "localhost"}, {"TPU_WORKER_ID", "0"}}));
  EXPECT_FALSE(detects({{"RANK", "0"}, {"WORLD_SIZE", "2"}}));
  EXPECT_FALSE(detects({{"JOB_COMPLETION_INDEX", "1"}}));
}

}  // namespace
}  // namespace lockstep
