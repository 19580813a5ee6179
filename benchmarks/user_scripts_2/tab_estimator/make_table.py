import csv
import random
import sys

r = random.Random(12)
jobs = ['admin', 'blue', 'tech', 'serv', 'ret', 'stud', 'self', 'unk']
cities = ['c%02d' % i for i in range(30)]
eff = {c: r.gauss(0, .7) for c in cities}
with open(sys.argv[1], 'w', newline='') as f:
    w = csv.writer(f)
    w.writerow(['age', 'balance', 'job', 'city', 'calls', 'y'])
    for _ in range(900):
        age, bal, job, city = r.randint(18, 80), r.gauss(1000, 900), r.choice(jobs), r.choice(cities)
        calls = r.choice(['', '1', '2', '3', '7'])
        s = .03 * (age - 45) * (1 if job in ('ret', 'self') else -.5) + bal / 1500 + eff[city] - (.4 if calls == '7' else 0)
        w.writerow([age, '%.2f' % bal, job, city, calls, int(s + r.gauss(0, .5) > 1.3)])
