import click
import torch

from .data import frechet, noise
from .loop import GAN
from .nets import Critic, Generator


def pick(ctx, param, value):
    return value or ('cuda' if torch.cuda.is_available() else 'cpu')


device_option = click.option('--device', default=None, callback=pick)


@click.group()
@click.option('--outdir', default='out')
@click.pass_context
def cli(ctx, outdir):
    ctx.obj = {'outdir': outdir}


@cli.command()
@click.option('--kimg', default=2.0, help='thousands of real pictures')
@click.option('--z', default=16)
@click.option('--width', default=16)
@click.option('--batch', default=16)
@click.option('--n-critic', default=3)
@click.option('--gamma', default=10.0)
@click.option('--ada-target', default=0.3)
@click.option('--seed', default=4)
@device_option
@click.pass_obj
def train(obj, kimg, **kw):
    gan = GAN(outdir=obj['outdir'], **kw)
    click.echo('G %d D %d' % tuple(sum(p.numel() for p in m.parameters()) for m in (gan.G, gan.D)))
    gan.run(int(kimg * 1000))


@cli.command()
@click.option('--n', default=4)
@device_option
@click.pass_obj
def sample(obj, n, device):
    c = torch.load(obj['outdir'] + '/last.pt', map_location=device)
    G = Generator(c['z'], c['width']).to(device)
    G.load_state_dict(c['Gs'])
    G.eval()
    g = torch.Generator().manual_seed(3)
    xs = []
    for _ in range(n):
        xs.append(G(noise(32, c['z'], g, device)).cpu())
    x = torch.cat(xs)
    print('mean colour', x.mean((0, 2, 3)).tolist(), 'self distance', frechet(x[::2], x[1::2]))
    torch.manual_seed(0)
    D = Critic(8)
    print('gradient probe', torch.autograd.grad(D(x.detach().requires_grad_()).sum(), D.fc.weight)[0].norm().item())
