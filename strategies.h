/// Strategies, distributed datasets, losses, layers that know about replicas, recomputation, and the cluster
/// coordinator.
#pragma once

#include "lockstep/strategies/coordinator/cluster_coordinator.h"
#include "lockstep/strategies/input/permutation.h"
#include "lockstep/strategies/make_strategy.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/nn/sharded_embedding.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/strategies/parallel/context_parallel_attention.h"
#include "lockstep/strategies/parallel/parallel_mlp.h"
#include "lockstep/strategies/parallel/sequence_layer_norm.h"
#include "lockstep/strategies/parallel/vocab_parallel_cross_entropy.h"
#include "lockstep/strategies/parallel/vocab_parallel_embedding.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"
#include "lockstep/strategies/pipeline/pipeline_runner.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/strategies/sharding/sharded_sequential.h"
#include "lockstep/strategies/training_steps.h"
