#include "lockstep/runtime/cluster/kubernetes_cluster_resolver.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

/// Variables as PyTorchJob sets them for the second of a master and two workers.
const Variables kPyTorchJob = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                               {"MASTER_ADDR", "train-master-0"},
                               {"MASTER_PORT", "23456"},
                               {"RANK", "1"},
                               {"WORLD_SIZE", "3"}};

/// The same from a newer PyTorchJob with two processes per pod, which torchrun would start.
const Variables kNewerPyTorchJob = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                    {"MASTER_ADDR", "train-master-0"},
                                    {"MASTER_PORT", "23456"},
                                    {"RANK", "1"},
                                    {"WORLD_SIZE", "6"},
                                    {"PET_MASTER_ADDR", "train-master-0"},
                                    {"PET_MASTER_PORT", "23457"},
                                    {"PET_NNODES", "3"},
                                    {"PET_NODE_RANK", "2"},
                                    {"PET_NPROC_PER_NODE", "2"}};

std::string kubernetes_refusal(const Variables& variables) {
  return message_of<InvalidArgument>([&] { KubernetesClusterResolver resolver(environment_of(variables)); });
}

TEST(KubernetesClusterResolver, ReadsPyTorchJob) {
  const KubernetesClusterResolver resolver(environment_of(kPyTorchJob));
  EXPECT_EQ(resolver.source(), "Kubernetes (PyTorchJob, RANK=1 of WORLD_SIZE=3)");
  EXPECT_EQ(resolver.rank(), 1);
  EXPECT_EQ(resolver.world_size(), 3);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.local_world_size(), 1);
  EXPECT_EQ(resolver.master(), (HostPort{.host = "train-master-0", .port = 23456}));
  EXPECT_TRUE(resolver.cluster_spec().empty());
}

TEST(KubernetesClusterResolver, CountsPodsByTheNewerVariables) {
  const KubernetesClusterResolver resolver(environment_of(kNewerPyTorchJob));
  EXPECT_EQ(resolver.source(), "Kubernetes (PyTorchJob, PET_NODE_RANK=2 of PET_NNODES=3)");
  EXPECT_EQ(resolver.rank(), 2);
  EXPECT_EQ(resolver.world_size(), 3);
  EXPECT_EQ(resolver.master(), (HostPort{.host = "train-master-0", .port = 23457}));
}

TEST(KubernetesClusterResolver, ReadsTFJob) {
  const KubernetesClusterResolver resolver(environment_of(
      {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
       {"TF_CONFIG",
        R"({"cluster": {"worker": ["train-worker-0.jobs.svc:2222", "train-worker-1.jobs.svc:2222"]},
            "task": {"type": "worker", "index": 1}, "environment": "cloud"})"}}));
  EXPECT_EQ(resolver.source(), "Kubernetes (TFJob, TF_CONFIG)");
  EXPECT_EQ(resolver.rank(), 1);
  EXPECT_EQ(resolver.master(), (HostPort{.host = "train-worker-0.jobs.svc", .port = 2222}));
}

TEST(KubernetesClusterResolver, NamesTheVariable) {
  EXPECT_EQ(kubernetes_refusal(changed(kPyTorchJob, {{"RANK", "3"}})),
            "[Kubernetes] expected RANK to be a whole number from 0 to 2, but got '3'");
  EXPECT_EQ(kubernetes_refusal(without(kPyTorchJob, "WORLD_SIZE")),
            "[Kubernetes] expected WORLD_SIZE to be a whole number, but it is not set");
  EXPECT_EQ(kubernetes_refusal(without(kPyTorchJob, "MASTER_PORT")),
            "[Kubernetes] expected MASTER_PORT to be a whole number, but it is not set");
  EXPECT_EQ(kubernetes_refusal(changed(kNewerPyTorchJob, {{"PET_MASTER_PORT", "x"}})),
            "[Kubernetes] expected PET_MASTER_PORT to be a whole number from 1 to 65535, but got 'x'");
  EXPECT_EQ(kubernetes_refusal(changed(kNewerPyTorchJob, {{"PET_NNODES", "1:3"}})),
            "[Kubernetes] expected PET_NNODES to be a whole number of 1 or more, but got '1:3'");
}

TEST(KubernetesClusterResolver, SendsElasticJobsToTorchrun) {
  EXPECT_EQ(kubernetes_refusal({{"PET_RDZV_ENDPOINT", "train-worker-0:23456"}, {"PET_NNODES", "1:3"}}),
            "[Kubernetes] expected PET_RDZV_ENDPOINT to be absent: an elastic PyTorchJob must be started by "
            "torchrun, but got 'train-worker-0:23456'");
}

TEST(KubernetesClusterResolver, DetectsPodsOfPyTorchJob) {
  const auto detects = [](const Variables& variables) {
    return KubernetesClusterResolver::detects(environment_of(variables));
  };
  EXPECT_TRUE(detects(kPyTorchJob));
  EXPECT_TRUE(detects(kNewerPyTorchJob));
  EXPECT_TRUE(detects({{"KUBERNETES_SERVICE_HOST", "a"}, {"PET_RDZV_ENDPOINT", "b:1"}}));
  EXPECT_FALSE(detects({{"KUBERNETES_SERVICE_HOST", "a"}}));
  EXPECT_FALSE(detects(without(kPyTorchJob, "KUBERNETES_SERVICE_HOST")));
}

}  // namespace
}  // namespace lockstep
