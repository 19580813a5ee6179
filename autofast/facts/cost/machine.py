"""Figures of the machine that a script is taken to run on: a GPU of the class of A100 and H100 with
its host, or a CPU of a server.

They are chosen so that only plain cases are left out: arithmetic is taken to be slow (an upper
bound of its time), the host to be fast (a lower bound). None of them is a measurement of the user's
machine.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """Attributes:
    launch: seconds for the host to begin one operation. step: seconds of the host in every step
    besides.
    products, convolutions: FLOP a second, in fp32 as torch does it unless told otherwise.
    memory: bytes a second, for what lies between the layers.
    overlaps: arithmetic goes on while the host begins the next operations, so that a step takes as
    long as the slower of the two.
    """

    launch: float
    step: float
    products: float
    convolutions: float
    memory: float
    overlaps: bool


# launch: cudaLaunchKernel takes 2.5 us by itself; with Python, the dispatcher and autograd, PyTorch
# comes to 5 to 10 us for an elementwise
# operation and to more for a convolution. step: a batch from the queue of the workers (50 us and
# more), optimizer.step(), zero_grad().
# products: 19.5e12 in fp32 on an A100, 67e12 on an H100, of which small matrices reach half and
# less. convolutions: cuDNN uses TF32, 156e12
# and 495e12, of which they reach a quarter and less. memory: 1.6e12 to 2.0e12 on an A100, 3.4e12 on
# an H100.
GPU = Machine(
    launch=5e-6, step=100e-6, products=12e12, convolutions=40e12, memory=2e12, overlaps=True
)

# A server's CPU has 1e12 to 4e12 FLOP a second in fp32, a laptop's a quarter of that; memory 50e9
# to 200e9 bytes a second.
CPU = Machine(
    launch=5e-6, step=50e-6, products=0.5e12, convolutions=0.5e12, memory=50e9, overlaps=False
)

# The other way round, for changes that cost time where there is little arithmetic: what 16 bits
# save on a CPU has to outweigh their casts even where fp32 is as fast as it gets, with the
# activations in the cache.
FAST_CPU = Machine(
    launch=5e-6, step=50e-6, products=2e12, convolutions=2e12, memory=400e9, overlaps=False
)

# How often an activation is written or read in fp32, forwards and backwards: by the layer, a
# normalisation, an activation.
PASSES = 8

# Bytes a second from the host to the device. PCIe 4 x16: 25e9 from pinned memory; pageable memory
# is copied once more by the host.
COPY = 12e9
# Seconds that one small copy from the host takes of a step, at the most. Published are shares: 1.18
# times as fast without 276 waits a step, 0.06 % for each (fairchem#2193); 1.04 times without one in
# a small network alone, less than 1.01 in its training (LANfactory#120). So it is taken for 1 % of
# a step of 15 ms, and is worth a line in shorter ones.
WAIT = 0.01 * 15e-3
# Seconds of a wait at the least, with nothing left to do: taken for two launches, of its copy and
# of what comes next.
ROUND = 10e-6
USUAL = 20e-3  # seconds of a step that is not known

# Seconds to hand a batch over from a worker: 0.3 to 3 ms were measured, with its tensors in shared
# memory. A batch that is made in COSTLY or more is worth a worker.
HANDOVER = 0.3e-3
COSTLY = 3e-3

# Seconds until an image of 28 x 28 pixels in memory is a PIL object, and in a batch of tensors (34
# and 52 us were measured); workers that do so beside each other.
PICTURE = 30e-6
WORKERS = 8

# Seconds in which a training takes an item, where its network is not known: ResNet-50 takes 2.3 ms
# for an image of 224 x 224 pixels in fp32 on an A100.
TAKEN = 4e-3
# How much longer convolutions take at the most than by the figures of the GPU, with what lies
# between them: of that ResNet-50 these make 1.0 ms.
CONVOLVED = 2.5
# Seconds until workers have started that are forked anew: 0.5 were measured of ten.
START = 0.5

# What is left, at best, of the time of products with 16 bits and with TF32, and of convolutions in
# channels_last and with algorithms chosen
# by measurement: 2 to 4.5 times as fast, 3 times, 1.15 to 1.6 times and up to 1.2 times in
# published measurements.
HALF = 0.4
TENSOR_CORES = 0.3
CHANNELS_LAST = 0.7
BENCHMARK = 0.8

# Operations that a fused optimizer saves a step beside the default of CUDA, which takes all
# parameters together, one operation after the other (Adam: a dozen of them, each longer to begin
# than one of a single tensor), and those of a pass through a recurrent cell: ten forwards, twenty
# backwards.
UPDATE = 20
TURN = 30
# The same of SGD with momentum; and how often a fused update reads or writes a parameter less, with
# what belongs to it. SGD without momentum takes one operation in any case.
SGD_UPDATE = 2
ACCESSES, SGD_ACCESSES = 11, 3

# The share of a step that a keyword without risk has to save, where that is known no better.
KEYWORD = 0.006

# Seconds of a whole training that a flag has to save to be worth a line.
NOTICED = 5.0
# Seconds of a step that is taken for long, where it is not known how long it is.
LONG_STEP = 0.2

# What inference_mode saves of a pass under no_grad, counted in the time of the host: nothing in
# convolutions, 5 % in small dense layers, 16 % in the many views of a transformer (torch 2.13, a
# CPU, tensors so small that operations are all that takes time). On a busy device it is nothing.
COUNTING = 0.1


def seconds(time: float) -> str:
    """``4.9 ms``."""
    if time >= 1:
        return f"{time:.1f} s"
    return f"{time * 1e3:.1f} ms" if time >= 1e-3 else f"{max(1, round(time * 1e6))} µs"
