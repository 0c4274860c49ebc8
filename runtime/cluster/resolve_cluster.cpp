#include "lockstep/runtime/cluster/resolve_cluster.h"

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/cluster/kubernetes_cluster_resolver.h"
#include "lockstep/runtime/cluster/open_mpi_cluster_resolver.h"
#include "lockstep/runtime/cluster/slurm_cluster_resolver.h"
#include "lockstep/runtime/cluster/tf_config_cluster_resolver.h"
#include "lockstep/runtime/cluster/torchrun_cluster_resolver.h"
#include "lockstep/runtime/cluster/tpu_cluster_resolver.h"

namespace lockstep {
namespace {

std::unique_ptr<ClusterResolver> resolve_flags(const ClusterFlags& flags) {
  if (flags.worker_hosts.empty() && !flags.task_index) return nullptr;
  if (!flags.task_index) {
    throw InvalidArgument(
        "[flags] expected --task-index together with --worker-hosts, but got no --task-index");
  }
  if (flags.worker_hosts.empty()) {
    throw InvalidArgument(
        "[flags] expected --worker-hosts together with --task-index, but got no --worker-hosts");
  }
  return std::make_unique<SimpleClusterResolver>(flags.worker_hosts, *flags.task_index);
}

std::unique_ptr<ClusterResolver> resolve_tf_config(const Environment& environment) {
  if (!TFConfigClusterResolver::detects(environment)) return nullptr;
  auto resolver = std::make_unique<TFConfigClusterResolver>(environment);
  const bool names_cluster = !resolver->cluster_spec().empty() || resolver->task_type() == "evaluator";
  return names_cluster ? std::move(resolver) : nullptr;
}

template <typename Resolver>
std::unique_ptr<ClusterResolver> resolve_launcher(const Environment& environment) {
  return Resolver::detects(environment) ? std::make_unique<Resolver>(environment) : nullptr;
}

}  // namespace

std::unique_ptr<ClusterResolver> resolve_cluster(const Environment& environment, const ClusterFlags& flags) {
  if (auto resolver = resolve_flags(flags)) return resolver;
  if (auto resolver = resolve_tf_config(environment)) return resolver;
  for (const auto resolve :
       {resolve_launcher<TorchrunClusterResolver>, resolve_launcher<KubernetesClusterResolver>,
        resolve_launcher<SlurmClusterResolver>, resolve_launcher<OpenMPIClusterResolver>,
        resolve_launcher<TPUClusterResolver>}) {
    if (auto resolver = resolve(environment)) return resolver;
  }
  return nullptr;
}

}  // namespace lockstep
